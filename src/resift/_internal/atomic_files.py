"""Files that appear whole or not at all, and frames that go through a pipe whole."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from resift.errors import FileWriteError

O_BINARY, O_NOFOLLOW, O_NONBLOCK = (getattr(os, flag, 0) for flag in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK"))
"""Flags of `os.open` that not every system has: 0 where there is none."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW | O_BINARY


def atomic_write(path: str | os.PathLike[str], text: str) -> Path:
    """Write the text beside its place and move it there; what stood there stays until then."""
    target = Path(path)
    with atomic_file(target) as file:
        file.write(text.encode())
    return target


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of `path` when the block ends well, and vanishes when not.

    The data is on the disk before the name changes: neither a full disk nor a power cut leaves half a file.
    Raises FileWriteError where it cannot be written.
    """
    target = Path(path)
    try:
        # A pipe or /dev/null must not be replaced by a file, and a folder gives the right error here.
        in_place = target.exists() and not target.is_file()
        with target.open("wb") if in_place else _replacing(target) as file:
            yield file
    except OSError as exc:
        if isinstance(exc, FileWriteError):  # of another file, written meanwhile
            raise
        # Not by the name in the error: the reader never heard of the temporary one.
        raise FileWriteError(f"{target}: {exc.strerror or exc}") from exc


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    # A name that nobody can foresee, and O_EXCL: a link planted there is not followed.
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        with os.fdopen(os.open(part, _NEW, 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
        _sync_folder(target.parent)
    finally:
        with contextlib.suppress(OSError):  # the error that brought us here is the one to tell
            part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Put the new name on the disk, where the system lets folders be synced."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_whole(pipe: BinaryIO, data: bytes) -> None:
    """Write everything to a pipe; nothing may be waiting in its buffer.

    Python's buffered writers lose bytes when the process is stopped and goes on (Ctrl-Z, fg) amid a write.
    """
    left = memoryview(data)
    while left:
        left = left[os.write(pipe.fileno(), left) :]
