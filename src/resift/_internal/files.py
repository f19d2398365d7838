r"""Resift's own files: atomic writes, file locks, and the cache and settings folders.

`RESIFT_HOME` moves all cache folders. By default they are in the system's cache folder: `~/.cache/resift`
(or below `XDG_CACHE_HOME`) on Linux, `~/Library/Caches/resift` on macOS, `%LOCALAPPDATA%\resift\Cache` on
Windows.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from resift.errors import FileWriteError, InputError, ResiftError

O_BINARY, O_NOFOLLOW, O_NONBLOCK = (getattr(os, flag, 0) for flag in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK"))
"""Flags of `os.open`; 0 on systems that do not have them."""


def atomic_write(path: str | os.PathLike[str], text: str, *, mode: int = 0o666) -> Path:
    """Replace the content of a file with this text, completely or not at all."""
    target = Path(path)
    with atomic_file(target, mode=mode) as file:
        file.write(text.encode())
    return target


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str], *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block succeeds and is deleted when it fails.

    The data is flushed to disk before the rename, so a full disk or a power cut cannot leave a partial file.
    Raises FileWriteError if the file cannot be written.
    """
    target = Path(path)
    try:
        # A pipe or /dev/null must not be replaced by a file. Opening a folder raises the right error.
        in_place = target.exists() and not target.is_file()
        with target.open("wb") if in_place else _replace_file(target, mode) as file:
            yield file
    except OSError as exc:
        if isinstance(exc, FileWriteError):  # from another file that was written inside the block
            raise
        # Name the target: the exception names the temporary file, which the user does not know.
        raise FileWriteError(f"{target}: {exc.strerror or exc}") from exc


@contextlib.contextmanager
def _replace_file(target: Path, mode: int) -> Iterator[BinaryIO]:
    # The name is unpredictable and O_EXCL is set, so an attacker's link is not followed.
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW | O_BINARY
    try:
        with os.fdopen(os.open(part, flags, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
        with contextlib.suppress(OSError):  # some systems cannot sync a folder
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    finally:
        with contextlib.suppress(OSError):  # must not hide an earlier error
            part.unlink(missing_ok=True)


def write_all(pipe: BinaryIO, data: bytes) -> None:
    """Write all bytes to a pipe whose buffer is empty.

    Python's buffered writers lose bytes if the process is suspended and resumed (Ctrl-Z, fg) during a write.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(pipe.fileno(), rest) :]


@contextlib.contextmanager
def file_lock(path: Path, *, error: type[ResiftError] = InputError, busy: str = "") -> Iterator[None]:
    """Hold a file lock, which the system releases when the process ends.

    If another process holds the lock, waits for it, or raises InputError with the message `busy` at once if
    that is set. Raises `error` if the file cannot be written.
    """
    from filelock import FileLock, Timeout

    # Not thread-local: the lock may be released by another thread than the one that acquired it.
    lock = FileLock(path, mode=0o600, thread_local=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0 if busy else -1)
    except Timeout:
        raise InputError(busy) from None
    except (OSError, NotImplementedError) as exc:
        cause = (exc.strerror if isinstance(exc, OSError) else "") or type(exc).__name__
        raise error(f"Cannot write to {path.parent}: {cause}. Choose a writable folder.") from exc
    try:
        yield
    finally:
        lock.release()


def cache_folder(use: Literal["models", "evaluation", "packs"]) -> Path:
    """Return the folder, which may not exist yet, for models, for evaluation files, or for knowledge packs."""
    return _resift_folder("cache") / use


def config_folder() -> Path:
    """Return the folder for user settings, which may not exist yet. `RESIFT_HOME` moves it as well."""
    return _resift_folder("config")


def _resift_folder(kind: Literal["cache", "config"]) -> Path:
    home = os.environ.get("RESIFT_HOME")
    if not home:
        import platformdirs

        find = platformdirs.user_cache_path if kind == "cache" else platformdirs.user_config_path
        home = str(find("resift", appauthor=False))
    return _expand_user(home)


def hub_cache_folder() -> Path:
    """Return the cache folder of `huggingface_hub`, based on its environment variables."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return _expand_user(os.environ[variable])
    home = os.environ.get("HF_HOME")
    if home:
        return _expand_user(home) / "hub"
    # The hub client applies this rule on every system, including Windows.
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _expand_user(base) / "huggingface" / "hub"


def _expand_user(path: str) -> Path:
    try:
        expanded = Path(path).expanduser()
    except RuntimeError:
        expanded = Path("~")
    # Users in some containers have no home folder. Files in the shared temporary folder are verified as usual.
    return Path(tempfile.gettempdir()) / "resift-cache" if str(expanded).startswith("~") else expanded
