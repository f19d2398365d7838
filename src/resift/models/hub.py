"""Fetching a pinned model with the hub's own client: no token, resumable, never more or longer than allowed.

The client moves bytes; what they must be is decided here, by the pinned size and sha256.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from resift._internal.file_lock import locked
from resift.errors import ModelFileError, ResiftError, require
from resift.events import Event, Sink, emit
from resift.models.allowlist import ModelSpec, PinnedFile
from resift.models.cache import own_folder
from resift.models.https_only import check_url
from resift.models.hub_transport import Limits, TookTooLong, guarded_client, is_local, limited
from resift.models.verify import verify

LIMIT_S = 3600.0
"""How long all files of a model may take together."""

_HUB = "https://huggingface.co"
_ATTEMPTS = 5
_DISK = (errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)


class Fetching(Event, name="model_fetching"):
    """A part of a model file has arrived."""

    model: str
    file: str
    done_bytes: int
    total_bytes: int


def offline() -> bool:
    """Say whether the environment forbids the hub."""
    words = (os.environ.get(name, "").strip().lower() for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    return any(word in ("1", "true", "yes", "on") for word in words)


def endpoint() -> str:
    """Return the hub's address: `HF_ENDPOINT` if set (https, or a server on this machine)."""
    return check_url(os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")


def fetch(
    spec: ModelSpec,
    *,
    progress: Sink | None = None,
    limit_s: float = LIMIT_S,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Path:
    """Fetch what is missing of a model into Resift's cache and return its folder.

    Two processes do not fetch at once: the second waits and finds the files there.
    """
    if spec.hub is None:
        raise ModelFileError(f"{spec.id!r} is not on the hub at a pinned revision.")
    if offline():
        raise ModelFileError(f"Not fetching {spec.id!r}: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set.")
    hub, address, folder = require("huggingface_hub", extra="local"), endpoint(), own_folder(spec)
    with (
        locked(folder.with_name(folder.name + ".lock"), error=ModelFileError),
        guarded_client(local=is_local(address)),
    ):
        ends_at = clock() + limit_s
        for pinned in spec.files:
            if pinned.required:
                url = hub.hf_hub_url(spec.hub.repo, pinned.name, revision=spec.hub.revision, endpoint=address)
                _Download(spec.id, url, folder / pinned.name, pinned, progress, pause, clock, ends_at).run()
    return folder


@dataclass(frozen=True, slots=True)
class _Download:
    """One file on its way; the part that has arrived survives a cut and a new process."""

    model: str
    url: str
    target: Path
    pinned: PinnedFile
    progress: Sink | None
    pause: Callable[[float], None]
    clock: Callable[[], float]
    ends_at: float

    @property
    def part(self) -> Path:
        return self.target.with_name(f"{self.target.name}.{self.pinned.sha256[:16]}.part")

    def run(self) -> None:
        if self.target.exists():
            verify(self.target, self.pinned)
            return
        # Each attempt goes on where the last one broke off, so a cut line costs little.
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._attempt()
                break
            except TookTooLong:
                raise
            # Our own refusal (too many bytes, another place): what has arrived is not to be trusted.
            except ResiftError:
                self.part.unlink(missing_ok=True)
                raise
            except Exception as exc:
                # The hub has less than the part holds: that is of another file, begin anew.
                if _status(exc) == 416:
                    self.part.unlink(missing_ok=True)
                if attempt == _ATTEMPTS or not _worth_retrying(exc):
                    raise self._failed(exc) from exc
            self.pause(min(0.25 * 2**attempt, 8.0))
        self._place()

    def _attempt(self) -> None:
        """Fetch from where the last attempt ended."""
        from huggingface_hub.file_download import http_get

        tqdm = require("tqdm.auto", extra="local").tqdm
        self.part.parent.mkdir(parents=True, exist_ok=True)
        done = self._have()
        limits = Limits(self._what(), is_local(self.url), done, self.pinned.size, self.ends_at, self.clock)
        with limited(limits), self.part.open("ab") as file:
            http_get(
                self.url,
                _Part(file, self),  # type: ignore[arg-type]  # the four methods that it uses
                resume_size=done,
                expected_size=self.pinned.size,
                tqdm_class=type("Silent", (tqdm,), {"__init__": _silent}),
            )

    def _have(self) -> int:
        """Return how much an earlier attempt left; a part that is too long, or a link, is dropped."""
        if self.part.is_symlink() or (self.part.exists() and self.part.stat().st_size > self.pinned.size):
            self.part.unlink()
        return self.part.stat().st_size if self.part.exists() else 0

    def _place(self) -> None:
        try:
            verify(self.part, self.pinned)
        except ModelFileError as exc:
            self.part.unlink(missing_ok=True)
            raise ModelFileError(
                f"{self._what()} gave other bytes than pinned. They were thrown away."
            ) from exc
        # Only whole and verified files ever have the final name.
        self.part.replace(self.target)

    def arrived(self, done: int) -> None:
        """Refuse more bytes than pinned; tell how far the file is."""
        if done > self.pinned.size:
            raise ModelFileError(f"{self._what()} is larger than the {self.pinned.size:,} bytes pinned.")
        emit(
            self.progress,
            Fetching(model=self.model, file=self.pinned.name, done_bytes=done, total_bytes=self.pinned.size),
        )

    def _what(self) -> str:
        return f"Fetching {self.pinned.name!r} of {self.model!r}"

    def _failed(self, exc: Exception) -> ModelFileError:
        status = _status(exc)
        if status is not None:
            return ModelFileError(f"{self._what()} failed: the hub answered {status}.")
        if isinstance(exc, OSError) and exc.errno in _DISK:
            return ModelFileError(f"{self._what()} failed: cannot write {self.part.parent}: {exc.strerror}.")
        if self.part.exists() and 0 < self.part.stat().st_size < self.pinned.size:
            return ModelFileError(
                f"{self._what()} stopped short {_ATTEMPTS} times. Try again: it goes on from there."
            )
        return ModelFileError(f"{self._what()} failed: {exc}. Is the network up?")


class _Part:
    """The file that the client writes to: counts what arrives before it is written."""

    def __init__(self, file: IO[bytes], download: _Download) -> None:
        self._file, self._download = file, download

    def write(self, data: bytes) -> int:
        self._download.arrived(self._file.tell() + len(data))
        return self._file.write(data)

    def seek(self, offset: int) -> int:
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()

    def truncate(self) -> int:
        return self._file.truncate()


def _silent(self: Any, *args: object, **options: object) -> None:
    """Initialise a progress bar that shows nothing: ours are events."""
    super(type(self), self).__init__(*args, **{**options, "disable": True})


def _status(exc: Exception) -> int | None:
    code = getattr(getattr(exc, "response", None), "status_code", None)
    return code if isinstance(code, int) else None


def _worth_retrying(exc: Exception) -> bool:
    status = _status(exc)
    if status is not None:
        return status in (408, 416, 429) or status >= 500
    return isinstance(exc, OSError) and exc.errno not in _DISK
