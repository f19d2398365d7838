"""Whether a file holds the pinned bytes, and reading it so that what was checked is what is used."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from pathlib import Path

from resift.errors import ModelFileError
from resift.models.allowlist import PinnedFile

_CHUNK = 1 << 20

Identity = tuple[int, int, int, int, int]
"""Device, inode, mtime_ns, ctime_ns, size: a file that was written to since differs in one of them."""

_verified: dict[tuple[str, str], Identity] = {}
_lock = threading.Lock()


def verify(path: Path, pinned: PinnedFile) -> None:
    """Check that the file is the pinned one; cheap when it was checked before and was not touched since."""
    with _opened(path, pinned) as fd:
        identity = _identity(fd)
        if _remembered(path, pinned) == identity:
            return
        _check(path, pinned, _digest(fd))
        _unchanged(path, identity, fd)
    _remember(path, pinned, identity)


def read_verified(path: Path, pinned: PinnedFile) -> bytes:
    """Return the file's bytes; they themselves were hashed, so no change between check and use is possible."""
    with _opened(path, pinned) as fd:
        identity = _identity(fd)
        data = _read(fd, pinned.size + 1)
    if len(data) != pinned.size:
        raise _changed(path, f"holds {len(data):,} bytes, the pin says {pinned.size:,}")
    _check(path, pinned, hashlib.sha256(data).hexdigest())
    _remember(path, pinned, identity)
    return data


def sha256_of(path: Path) -> tuple[str, int]:
    """Return digest and size of a regular file."""
    with _Opened(path) as fd:
        return _digest(fd), os.fstat(fd).st_size


class _Opened:
    """A descriptor of a regular file, closed at the end; never waits on a pipe or device."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> int:
        flags = (
            os.O_RDONLY
            | getattr(os, "O_NONBLOCK", 0)
            | getattr(os, "O_CLOEXEC", 0)
            | getattr(os, "O_BINARY", 0)
        )
        try:
            self._fd = os.open(self._path, flags)
        except OSError as exc:
            raise ModelFileError(f"Cannot read model file {self._path}: {exc.strerror}.") from exc
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            self.__exit__()
            raise ModelFileError(f"{self._path} is not a regular file.")
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _opened(path: Path, pinned: PinnedFile) -> _Opened:
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as exc:
        raise ModelFileError(f"Model file {path} is missing or unreadable.") from exc
    if size != pinned.size:
        raise _changed(path, f"holds {size:,} bytes, the pin says {pinned.size:,}")
    return _Opened(path)


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
    while left > 0 and (chunk := os.read(fd, left)):
        parts.append(chunk)
        left -= len(chunk)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check(path: Path, pinned: PinnedFile, digest: str) -> None:
    if digest != pinned.sha256:
        raise _changed(path, f"has sha256 {digest[:12]}…, the pin says {pinned.sha256[:12]}…")


def _unchanged(path: Path, before: Identity, fd: int) -> None:
    if _identity(fd) != before:
        raise _changed(path, "was written to while it was being checked")


def _changed(path: Path, what: str) -> ModelFileError:
    return ModelFileError(
        f"Model file {path} {what}. It was changed or is of another version, and is not loaded. "
        "Delete it and fetch it again."
    )


def _remembered(path: Path, pinned: PinnedFile) -> Identity | None:
    with _lock:
        return _verified.get((os.fspath(path), pinned.sha256))


def _remember(path: Path, pinned: PinnedFile, identity: Identity) -> None:
    with _lock:
        _verified[os.fspath(path), pinned.sha256] = identity
