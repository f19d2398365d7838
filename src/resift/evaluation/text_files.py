"""Lines of text files, and what is wrong with files that are none: every message names file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from resift.errors import DataFormatError
from resift.types import JsonMapping

MAX_BYTES = 1 << 30


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 text file, or raise DataFormatError that says what it is instead."""
    try:
        if path.is_dir():
            raise DataFormatError("this is a folder; name a file", file=str(path))
        if not path.exists():
            raise DataFormatError("no such file", file=str(path))
        if path.stat().st_size > MAX_BYTES:
            raise DataFormatError("larger than 1 GiB; split it", file=str(path))
        raw = _unpacked(path)
    except OSError as exc:  # a name too long, no permission, a device
        raise DataFormatError(f"cannot be read: {exc.strerror}", file=str(path)[:200]) from exc
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = raw[: exc.start].count(b"\n") + 1
        raise DataFormatError("not UTF-8 text; convert it first", file=str(path), line=line) from None
    if "\0" in text:
        raise DataFormatError("a binary file; expected text", file=str(path))
    # Not splitlines(): texts may hold U+2028 and the like, which end no line of a file.
    return [line.removesuffix("\r") for line in text.split("\n")]


def numbered(path: Path, *, expected: str) -> list[tuple[int, str]]:
    """Return (line number, line) of all lines that are not blank; an empty file is refused."""
    lines = [(number, line) for number, line in enumerate(read_lines(path), start=1) if line.strip()]
    if not lines:
        raise DataFormatError(f"the file is empty; expected {expected}", file=str(path))
    return lines


def json_rows(path: Path, *, expected: str) -> Iterator[tuple[int, JsonMapping]]:
    """Yield (line number, object) of a JSONL file."""
    for number, line in numbered(path, expected=expected):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise DataFormatError(
                "not JSON; write one JSON object a line", file=str(path), line=number
            ) from None
        if not isinstance(row, dict):
            message = f"a {type(row).__name__}; write one JSON object a line"
            raise DataFormatError(message, file=str(path), line=number)
        yield number, row


def _unpacked(path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    import gzip
    import zlib

    try:
        with gzip.open(path) as file:
            raw = file.read(MAX_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataFormatError("not a whole gzip file", file=str(path)) from None
    if len(raw) > MAX_BYTES:
        raise DataFormatError("larger than 1 GiB unpacked; split it", file=str(path))
    return raw
