"""Whether a file holds the pinned bytes, and reading it so that what was checked is what is used."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resift._internal.forking import ForkSafeLock
from resift.errors import ModelFileError
from resift.models.allowlist import PinnedFile

MAX_FILE_BYTES = 1 << 31
_CHUNK = 1 << 20
# Coarse enough for file systems that keep times in whole seconds or two.
_SETTLED_NS = 2_000_000_000

Identity = tuple[int, int, int, int, int]
"""Device, inode, mtime_ns, ctime_ns, size: a file that was written to since differs in one of them."""

_verified: dict[tuple[str, str], Identity] = {}
_lock = ForkSafeLock()


def verify(path: Path, pinned: PinnedFile) -> None:
    """Check that the file is the pinned one; cheap when it was checked before and not touched since."""
    with _opened(path) as fd:
        before = _identity(fd)
        _check_size(path, pinned, before[-1])
        if _remembered(path, pinned) == before:
            return
        _check_digest(path, pinned, _digest(fd))
        if _identity(fd) != before:
            raise _changed(path, "was written to while it was being checked")
    _remember(path, pinned, before)


def read_verified(path: Path, pinned: PinnedFile) -> bytes:
    """Return the file's bytes after hashing those very bytes: nothing can change between check and use."""
    with _opened(path) as fd:
        identity = _identity(fd)
        _check_size(path, pinned, identity[-1])
        data = _read(fd, pinned.size + 1)
    _check_size(path, pinned, len(data))
    _check_digest(path, pinned, hashlib.sha256(data).hexdigest())
    _remember(path, pinned, identity)
    return data


def read_unpinned(path: Path, *, limit: int = MAX_FILE_BYTES) -> bytes:
    """Return the bytes of a regular file that has no pin yet, if it is not larger than the limit."""
    with _opened(path) as fd:
        size = os.fstat(fd).st_size
        if size <= limit:
            data = _read(fd, limit + 1)
            size = len(data)
    if size > limit:
        raise ModelFileError(f"{path} holds {size:,} bytes or more; the limit is {limit:,}.")
    return data


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a regular file; never wait on a pipe or device."""
    flags = os.O_RDONLY
    # Not every platform has all of them.
    for wish in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOCTTY"):
        flags |= getattr(os, wish, 0)
    try:
        fd = os.open(path, flags)
    except (OSError, ValueError) as exc:
        why = (exc.strerror if isinstance(exc, OSError) else "") or "not a usable path"
        raise ModelFileError(f"Cannot read model file {path}: {why}.") from exc
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ModelFileError(f"{path} is not a regular file.")
        yield fd
    finally:
        os.close(fd)


def _identity(fd: int) -> Identity:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def _digest(fd: int) -> str:
    digest = hashlib.sha256()
    while chunk := os.read(fd, _CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _read(fd: int, limit: int) -> bytes:
    parts: list[bytes] = []
    left = limit
    # os.read sets aside as much as it is asked for: the file's size and a byte to see its end, not the limit.
    at_once = min(os.fstat(fd).st_size + 1, 1 << 30)
    while left > 0 and (chunk := os.read(fd, min(left, at_once))):
        parts.append(chunk)
        left -= len(chunk)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_size(path: Path, pinned: PinnedFile, size: int) -> None:
    if size != pinned.size:
        raise _changed(path, f"holds {size:,} bytes, the pin says {pinned.size:,}")


def _check_digest(path: Path, pinned: PinnedFile, digest: str) -> None:
    if digest != pinned.sha256:
        raise _changed(path, f"has sha256 {digest[:12]}…, the pin says {pinned.sha256[:12]}…")


def _changed(path: Path, what: str) -> ModelFileError:
    return ModelFileError(
        f"Model file {path} {what}. It was changed or is of another version, so it is not loaded. "
        "Delete it and install or fetch it again."
    )


def _remembered(path: Path, pinned: PinnedFile) -> Identity | None:
    with _lock:
        return _verified.get((os.fspath(path), pinned.sha256))


def _remember(path: Path, pinned: PinnedFile, identity: Identity) -> None:
    # File times tick every few milliseconds: a file written a moment ago could change and look the same.
    if time.time_ns() - max(identity[2], identity[3]) < _SETTLED_NS:
        return
    with _lock:
        _verified[os.fspath(path), pinned.sha256] = identity
