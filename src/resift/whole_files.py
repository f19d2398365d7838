"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_whole(path: str | os.PathLike[str], text: str) -> Path:
    """Write the text beside its place and move it there; what stood there stays until then."""
    target = Path(path)
    if target.exists() and not target.is_file():
        # A pipe or /dev/stdout cannot be replaced, and a folder gives the right error here.
        target.write_text(text, encoding="utf-8")
        return target
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    except OSError as exc:
        exc.filename = str(target)  # the reader never heard of the other name
        raise
    finally:
        with contextlib.suppress(OSError):  # the error that brought us here is the one to tell
            part.unlink(missing_ok=True)
    return target
