"""Download a pinned model from the hub: fixed revision, no token, and our own check of size and sha256.

`huggingface_hub` moves the bytes and takes care of retries and resuming. Bytes other than the pinned ones are
refused, whichever server sent them.
"""

from __future__ import annotations

import os
import shutil
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from resift._internal.files import cache_folder, file_lock
from resift.errors import ModelFileError, require
from resift.events import Event, Sink, emit
from resift.models.registry import HubSource, ModelSpec
from resift.models.verify import PinnedFile, verify

TIME_LIMIT_S = 3600.0
"""Time limit for all files of a model together."""

_HUB = "https://huggingface.co"
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Fetching(Event, name="model_fetching"):
    """A part of a model file has arrived."""

    model: str
    file: str
    done_bytes: int
    total_bytes: int


def is_offline() -> bool:
    """Whether the environment forbids downloads."""
    values = (os.environ.get(name, "").strip().lower() for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    return any(value in ("1", "true", "yes", "on") for value in values)


def hub_endpoint() -> str:
    """Return the hub's address: `HF_ENDPOINT` if set. It must be https, or http on this machine."""
    url = os.environ.get("HF_ENDPOINT") or _HUB
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname
    except ValueError as exc:
        raise ModelFileError("HF_ENDPOINT is not a URL.") from exc
    if parts.username or parts.password:
        raise ModelFileError("HF_ENDPOINT contains a user name or password. Remove it.")
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)):
        raise ModelFileError(
            f"HF_ENDPOINT is {parts.scheme or 'no scheme'}://{host or ''}; models are downloaded over https, "
            "or over http from this machine."
        )
    return url.rstrip("/")


def download_model(
    spec: ModelSpec,
    folder: Path,
    *,
    progress: Sink | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
) -> Path:
    """Download the missing files of a model into the folder and return it.

    If two processes download the same model, the second one waits and then finds the files.
    """
    if spec.hub is None:
        raise ModelFileError(f"{spec.id!r} is not on the hub at a pinned revision.")
    if is_offline():
        raise ModelFileError(f"{spec.id!r} is not downloaded: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set.")
    endpoint, ends_at = hub_endpoint(), clock() + time_limit_s
    # Files move to their final place only after verification.
    staging = folder.with_name(folder.name + ".part")
    with file_lock(folder.with_name(folder.name + ".lock"), error=ModelFileError):
        for pinned in spec.files:
            target = folder / pinned.name
            if target.exists():
                verify(target, pinned)
            elif pinned.required:
                transfer = _Transfer(spec.id, pinned, progress, clock, ends_at)
                path = transfer.run(spec.hub, endpoint, staging)
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    path.replace(target)
                except OSError as exc:
                    raise ModelFileError(f"Cannot write to {target.parent}: {exc.strerror}.") from exc
        shutil.rmtree(staging, ignore_errors=True)
    return folder


def download_repository(
    repo: str,
    revision: str,
    *,
    progress: Sink | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Path, str]:
    """Download the files of a hub repository that a model needs and return their folder and the exact commit.

    The files have no pins yet: the caller inspects them and pins their digests.
    """
    from resift.models.hf_folder import needed_files

    if is_offline():
        raise ModelFileError(
            f"{repo!r} is not downloaded: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set. Add a local folder: "
            f"resift models add ./folder --name {repo}"
        )
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    hub = require("huggingface_hub", extra="local")
    endpoint, ends_at = hub_endpoint(), clock() + time_limit_s

    def report(file: str, done_bytes: int, total_bytes: int) -> None:
        if clock() > ends_at:
            raise ModelFileError(f"Downloading {repo!r} took too long. Try again to resume.")
        emit(progress, Fetching(model=repo, file=file, done_bytes=done_bytes, total_bytes=total_bytes))

    try:
        info = hub.HfApi(endpoint=endpoint, token=False, user_agent="resift").model_info(
            repo, revision=revision
        )
        commit = str(info.sha)
        names = needed_files([sibling.rfilename for sibling in info.siblings or ()])
        folder = cache_folder("models") / repo.replace("/", "--") / commit
        for name in names:
            if (folder / name).is_file():
                continue
            report(name, 0, 0)
            hub.hf_hub_download(
                repo,
                name,
                revision=commit,
                endpoint=endpoint,
                local_dir=folder,
                token=False,
                user_agent="resift",
                tqdm_class=_progress_class(partial(report, name)),
            )
        shutil.rmtree(folder / ".cache", ignore_errors=True)  # the client's own bookkeeping
    except ModelFileError:
        raise
    # The client raises its own errors, those of its HTTP library, and OSError.
    except Exception as exc:
        problem = _describe_failure(exc)
        raise ModelFileError(
            f"Downloading {repo!r} failed: {problem}. Check the name, the network and HF_ENDPOINT, or run: "
            f"resift models add ./folder --name {repo}"
        ) from exc
    return folder, commit


@dataclass(frozen=True, slots=True)
class _Transfer:
    """The download of one file."""

    model_id: str
    pinned: PinnedFile
    progress: Sink | None
    clock: Callable[[], float]
    ends_at: float

    def run(self, source: HubSource, endpoint: str, staging: Path) -> Path:
        """Download the file into the staging folder and verify it there; wrong bytes are deleted."""
        # Otherwise the client reports what runs it, and requests a list of known programs for that.
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        hub = require("huggingface_hub", extra="local")
        try:
            hub.hf_hub_download(
                source.repo,
                self.pinned.name,
                revision=source.revision,
                endpoint=endpoint,
                local_dir=staging,
                token=False,  # pinned models are public; a token in the environment must not be sent
                user_agent="resift",
                tqdm_class=_progress_class(self._report),
            )
        except ModelFileError:
            raise
        # The client raises its own errors, those of its HTTP library, and OSError.
        except Exception as exc:
            problem = _describe_failure(exc)
            advice = "Check the network and HF_ENDPOINT, then try again to resume."
            raise self._error(f"failed: {problem}. {advice}") from exc
        path = staging / self.pinned.name
        try:
            verify(path, self.pinned)
        except ModelFileError as exc:
            path.unlink(missing_ok=True)
            raise self._error("gave other bytes than pinned. They were deleted.") from exc
        return path

    def _report(self, done_bytes: int, _announced_bytes: int) -> None:
        total_bytes = self.pinned.size
        if done_bytes > total_bytes:
            raise self._error(f"failed: the hub sends more than the {total_bytes:,} bytes pinned.")
        if self.clock() > self.ends_at:
            raise self._error("took too long. Try again to resume.")
        name = self.pinned.name
        event = Fetching(model=self.model_id, file=name, done_bytes=done_bytes, total_bytes=total_bytes)
        emit(self.progress, event)

    def _error(self, problem: str) -> ModelFileError:
        return ModelFileError(f"Downloading {self.pinned.name!r} of {self.model_id!r} {problem}")


def _progress_class(report: Callable[[int, int], None]) -> type:
    """Return a silent progress bar that passes received and announced bytes on; `report` may raise."""
    base: type = require("tqdm.auto", extra="local").tqdm

    class Progress(base):  # type: ignore[misc]  # a class known at run time only
        def __init__(self, *args: object, **options: object) -> None:
            self.done_bytes = int(str(options.get("initial") or 0))
            self.total_bytes = int(str(options.get("total") or 0))
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.done_bytes += int(n or 0)
            report(self.done_bytes, self.total_bytes)

    return Progress


def _describe_failure(exc: Exception) -> str:
    status = getattr(getattr(exc, "response", None), "status_code", None)
    return f"the hub answered {status}" if status else f"{type(exc).__name__}: {exc}".rstrip(".")
