"""Which code answered: answers of other code are never taken for today's."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_DECIDES_NOTHING = {"cli", "testing", "__pycache__"}


@cache
def code_digest() -> str:
    """Return a digest of all of Resift's own modules that can change an answer."""
    digest = hashlib.sha256()
    for name, content in sorted(_modules(files("resift"), "")):
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _modules(folder: Traversable, path: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            found += [] if entry.name in _DECIDES_NOTHING else _modules(entry, name)
        elif entry.name.endswith((".py", ".c", ".h")):
            found.append((name, entry.read_bytes()))
    return found
