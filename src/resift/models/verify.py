"""Check that files contain the pinned bytes, and return exactly the bytes that were checked."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec

from resift._internal.forking import ForkSafeLock
from resift.errors import ModelFileError

MODEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_FILE_BYTES = 1 << 31
# Two seconds, because some file systems store times with a resolution of one or two seconds.
_SETTLED_NS = 2_000_000_000

FileIdentity = tuple[int, int, int, int, int]
"""Device, inode, mtime_ns, ctime_ns and size. Writing to a file changes at least one of them."""

_verified: dict[tuple[str, str], FileIdentity] = {}
_lock = ForkSafeLock()


class PinnedFile(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model file with the size and digest it must have; the name is plain, because it becomes a path."""

    name: Annotated[str, msgspec.Meta(pattern=r"(?a)\A(?!\.\.(?:/|\Z))[\w.-]{1,120}(?:/(?!\.\.\Z)[\w.-]{1,120})?\Z")]
    size: Annotated[int, msgspec.Meta(ge=0)]
    sha256: Annotated[str, msgspec.Meta(pattern=rf"\A{SHA256.pattern}\Z")]
    required: bool = True


def verify(path: Path, pinned: PinnedFile) -> None:
    """Raise ModelFileError unless the file has the pinned content; a file is hashed again only after a change."""
    with _open_regular_file(path) as fd:
        identity = _identify(fd)
        _check_size(path, pinned, identity[-1])
        with _lock:
            if _verified.get((os.fspath(path), pinned.sha256)) == identity:
                return
        with open(fd, "rb", closefd=False) as file:
            _check_digest(path, pinned, hashlib.file_digest(file, "sha256").hexdigest())
        if _identify(fd) != identity:
            raise _changed_error(path, "was written to while it was being checked")
    _remember(path, pinned, identity)


def read_verified(path: Path, pinned: PinnedFile) -> bytes:
    """Return the file's bytes after checking the digest of these same bytes."""
    with _open_regular_file(path) as fd:
        identity = _identify(fd)
        _check_size(path, pinned, identity[-1])
        data = _read(fd, pinned.size + 1)
    _check_size(path, pinned, len(data))
    _check_digest(path, pinned, hashlib.sha256(data).hexdigest())
    _remember(path, pinned, identity)
    return data


def read_unpinned(path: Path, *, limit: int = MAX_FILE_BYTES) -> bytes:
    """Return the bytes of a regular file that has no pin yet; reject files above the limit."""
    with _open_regular_file(path) as fd:
        size = os.fstat(fd).st_size
        if size <= limit:
            data = _read(fd, limit + 1)
            size = len(data)
    if size > limit:
        raise ModelFileError(f"{path} has at least {size:,} bytes; the limit is {limit:,}.")
    return data


@contextmanager
def _open_regular_file(path: Path) -> Iterator[int]:
    flags = os.O_RDONLY
    # O_NONBLOCK prevents a wait when opening a pipe. Some platforms lack some of these flags.
    for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOCTTY"):
        flags |= getattr(os, name, 0)
    try:
        fd = os.open(path, flags)
    except (OSError, ValueError) as exc:
        reason = (exc.strerror if isinstance(exc, OSError) else "") or "not a usable path"
        raise ModelFileError(f"Cannot read model file {path}: {reason}.") from exc
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ModelFileError(f"{path} is not a regular file.")
        yield fd
    finally:
        os.close(fd)


def _identify(fd: int) -> FileIdentity:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def _read(fd: int, limit: int) -> bytes:
    chunks: list[bytes] = []
    remaining = limit
    # os.read allocates the requested size, so request the file's size plus one byte to detect its end.
    request = min(os.fstat(fd).st_size + 1, 1 << 30)
    while remaining > 0 and (chunk := os.read(fd, min(remaining, request))):
        chunks.append(chunk)
        remaining -= len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _check_size(path: Path, pinned: PinnedFile, size: int) -> None:
    if size != pinned.size:
        raise _changed_error(path, f"has {size:,} bytes, but the pinned size is {pinned.size:,} bytes")


def _check_digest(path: Path, pinned: PinnedFile, digest: str) -> None:
    if digest != pinned.sha256:
        raise _changed_error(path, f"has sha256 {digest[:12]}…, but the pinned digest is {pinned.sha256[:12]}…")


def _changed_error(path: Path, problem: str) -> ModelFileError:
    return ModelFileError(
        f"Model file {path} {problem}. It was changed or belongs to another version, so it is not loaded. "
        "Delete it and install or download it again."
    )


def _remember(path: Path, pinned: PinnedFile, identity: FileIdentity) -> None:
    # File times have a coarse resolution, so a file written a moment ago could change without a new time.
    if time.time_ns() - max(identity[2], identity[3]) < _SETTLED_NS:
        return
    with _lock:
        _verified[os.fspath(path), pinned.sha256] = identity
