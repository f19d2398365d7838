"""One process at a time, by a lock file that the system releases when the process ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resift.errors import InputError, ResiftError


@contextmanager
def locked(path: Path, *, error: type[ResiftError] = InputError, busy: str = "") -> Iterator[None]:
    """Hold the lock; another holder is waited for, or InputError(`busy`) raised where that is given.

    Raises `error` where the file cannot be written.
    """
    from filelock import FileLock, Timeout

    # Not per thread: the holder may be released by another thread than the one that took it.
    lock = FileLock(path, mode=0o600, thread_local=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0 if busy else -1)
    except Timeout:
        raise InputError(busy) from None
    except (OSError, NotImplementedError) as exc:
        cause = (exc.strerror if isinstance(exc, OSError) else "") or type(exc).__name__
        raise error(f"Cannot write to {path.parent}: {cause}. Choose a folder that can be written.") from exc
    try:
        yield
    finally:
        lock.release()
