"""Fetching a pinned model from the hub: plain HTTPS, resumable, hashed on the way, never more than pinned."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from resift.errors import ModelFileError
from resift.events import Event, Sink, emit
from resift.models.allowlist import ModelSpec, PinnedFile
from resift.models.cache import own_folder
from resift.models.file_lock import locked
from resift.models.https_only import check_url, opener
from resift.models.verify import verify

_HUB = "https://huggingface.co"
_CHUNK = 1 << 18
_ATTEMPTS = 5
_TIMEOUT_S = 30.0
_DISK = (errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
_BROKEN = (OSError, http.client.HTTPException)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching(Event):
    """A part of a model file has arrived."""

    name: ClassVar[str] = "model_fetching"
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
    spec: ModelSpec, *, progress: Sink | None = None, pause: Callable[[float], None] = time.sleep
) -> Path:
    """Fetch what is missing of a model into Resift's cache and return its folder.

    Two processes do not fetch at once: the second waits and finds the files there.
    """
    if spec.hub is None:
        raise ModelFileError(f"{spec.id!r} is not on the hub at a pinned revision.")
    if offline():
        raise ModelFileError(f"Not fetching {spec.id!r}: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set.")
    base = f"{endpoint()}/{spec.hub.repo}/resolve/{spec.hub.revision}"
    folder = own_folder(spec)
    with locked(folder.with_name(folder.name + ".lock")):
        for pinned in spec.files:
            if pinned.required:
                _Download(
                    spec.id, f"{base}/{pinned.name}", folder / pinned.name, pinned, progress, pause
                ).run()
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

    @property
    def part(self) -> Path:
        return self.target.with_name(f"{self.target.name}.{self.pinned.sha256[:16]}.part")

    def run(self) -> None:
        if self.target.exists():
            verify(self.target, self.pinned)
            return
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if self._attempt():
                    return
            except _BROKEN as exc:
                if getattr(exc, "code", None) == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                    self.part.unlink(missing_ok=True)
                if attempt == _ATTEMPTS or not _worth_retrying(exc):
                    raise self._failed(exc) from exc
            self.pause(min(0.25 * 2**attempt, 8.0))
        raise ModelFileError(
            f"{self._what()} stopped short {_ATTEMPTS} times. Try again: it goes on from there."
        )

    def _attempt(self) -> bool:
        """Fetch from where the last attempt ended; say whether the file is complete and in place."""
        self.part.parent.mkdir(parents=True, exist_ok=True)
        digest, done = self._have()
        if done < self.pinned.size:
            with opener(self.url).open(self._request(done), timeout=_TIMEOUT_S) as response:
                if done and response.status != http.client.PARTIAL_CONTENT:
                    digest, done = hashlib.sha256(), 0
                self._check_answer(response, done)
                done = self._receive(response, digest, done)
        if done < self.pinned.size:
            return False
        if digest.hexdigest() != self.pinned.sha256:
            self.part.unlink(missing_ok=True)
            raise ModelFileError(f"{self._what()} gave other bytes than pinned. They were thrown away.")
        self.part.replace(self.target)
        return True

    def _have(self) -> tuple[Any, int]:
        """Return digest and length of what an earlier attempt left; a part that is too long is dropped."""
        digest, done = hashlib.sha256(), 0
        if self.part.is_symlink() or (self.part.exists() and self.part.stat().st_size > self.pinned.size):
            self.part.unlink()
        if self.part.exists():
            with self.part.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                    done += len(chunk)
        return digest, done

    def _request(self, done: int) -> urllib.request.Request:
        headers = {"User-Agent": "resift", "Accept-Encoding": "identity"}
        if done:
            headers["Range"] = f"bytes={done}-"
        return urllib.request.Request(self.url, headers=headers)  # noqa: S310 - check_url saw it

    def _check_answer(self, response: Any, done: int) -> None:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise ModelFileError(f"{self._what()} came compressed, which was not asked for.")
        if response.status == http.client.PARTIAL_CONTENT:
            begins = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
            if begins != str(done):
                self.part.unlink(missing_ok=True)
                raise ModelFileError(f"{self._what()} went on from another place than asked. Try again.")
        length = response.headers.get("Content-Length")
        if length is not None and length.isdigit() and int(length) > self.pinned.size - done:
            raise ModelFileError(f"{self._what()} is larger than the {self.pinned.size:,} bytes pinned.")

    def _receive(self, response: Any, digest: Any, done: int) -> int:
        with self.part.open("ab" if done else "wb") as file:
            while chunk := response.read(_CHUNK):
                if done + len(chunk) > self.pinned.size:
                    file.close()
                    self.part.unlink(missing_ok=True)
                    raise ModelFileError(
                        f"{self._what()} is larger than the {self.pinned.size:,} bytes pinned."
                    )
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                emit(
                    self.progress,
                    Fetching(
                        model=self.model, file=self.pinned.name, done_bytes=done, total_bytes=self.pinned.size
                    ),
                )
        return done

    def _what(self) -> str:
        return f"Fetching {self.pinned.name!r} of {self.model!r}"

    def _failed(self, exc: Exception) -> ModelFileError:
        if isinstance(exc, urllib.error.HTTPError):
            return ModelFileError(f"{self._what()} failed: the hub answered {exc.code}.")
        if isinstance(exc, OSError) and exc.errno in _DISK:
            return ModelFileError(f"{self._what()} failed: cannot write {self.part.parent}: {exc.strerror}.")
        reason = getattr(exc, "reason", None) or exc
        return ModelFileError(f"{self._what()} failed: {reason}. Is the network up?")


def _worth_retrying(exc: Exception) -> bool:
    if isinstance(exc, urllib.error.HTTPError):
        exc.close()
        return exc.code in (408, 416, 429) or exc.code >= 500
    return not (isinstance(exc, OSError) and exc.errno in _DISK)
