"""How an index knows a file: its name beside the store, and what changes when its content does."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from resift.ingest.sources import open_source

_FORMAT = "3"  # part of every digest; raise it when readers or chunking change their output
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


def folder_of(store: str) -> Path:
    """Return the folder of a store, beside which files are named."""
    return Path(store).absolute().parent


async def digest_of(file: Path, key: str, how: str) -> str:
    """Return what changes when the file, or how it is read, changes; only for regular files."""
    digest = hashlib.sha256(f"{_FORMAT} {how}\n".encode())
    with open_source(file, name=key).file as data:
        while block := await asyncio.to_thread(data.read, 1 << 22):
            digest.update(block)
    return digest.hexdigest()


def gone_from(known: Iterable[str], present: set[str], root: Path) -> list[str]:
    """Return the indexed files that are no longer there; one that cannot be looked at is not gone."""
    gone = []
    for key in sorted(set(known) - present):
        with contextlib.suppress(OSError):
            if not _path_of(key, root).exists():
                gone.append(key)
    return gone


def size_of(file: Path) -> int:
    """Return how many bytes a file has; 0 where it cannot be asked."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def key_of(file: Path, root: Path) -> str:
    """Name a file relative to the store, whatever the current folder is; bytes that are no text in hex."""
    absolute = file.absolute()
    try:
        name = Path(os.path.relpath(absolute, root)).as_posix()
    except ValueError:  # another drive
        name = absolute.as_posix()
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _path_of(key: str, root: Path) -> Path:
    """Return the file that a key names."""
    plain = root / key
    if "\\x" not in key or plain.exists():
        return plain
    raw = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), key.encode())
    return root / os.fsdecode(raw)
