"""One process at a time, by a lock file that the system releases when the process ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resift.errors import ModelFileError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock; another holder is waited for."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(
            path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o600
        )
    except OSError as exc:
        raise ModelFileError(f"Cannot write to the model cache {path.parent}: {exc.strerror}.") from exc
    try:
        _take(fd)
        yield
    finally:
        os.close(fd)


def _take(fd: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(fd, msvcrt.LK_LOCK, 1)
    else:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX)
