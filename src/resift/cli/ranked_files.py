"""Ranked lists from files: JSONL or TREC run, told apart by what is in them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from resift.errors import DataFormatError

MAX_BYTES = 1 << 30


def read_ranked_file(path: Path) -> dict[str, list[Any]]:
    """Return the candidates of each query, best first; a JSONL file has one nameless query."""
    lines = [(number, line) for number, line in enumerate(read_lines(path), start=1) if line.strip()]
    if not lines:
        raise DataFormatError("the file is empty; expected JSONL or a TREC run", file=str(path))
    if lines[0][1].lstrip()[0] in '{["':
        return {"": [_json_line(path, number, line) for number, line in lines]}
    return _trec_run(path, lines)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 text file, or raise DataFormatError that says what it is instead."""
    if path.is_dir():
        raise DataFormatError("this is a folder; name a file", file=str(path))
    if not path.exists():
        raise DataFormatError("no such file", file=str(path))
    if path.stat().st_size > MAX_BYTES:
        raise DataFormatError("larger than 1 GiB; split it", file=str(path))
    raw = _unpacked(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = raw[: exc.start].count(b"\n") + 1
        raise DataFormatError("not UTF-8 text; convert it first", file=str(path), line=line) from None
    if "\0" in text:
        raise DataFormatError("a binary file; expected text", file=str(path))
    return text.splitlines()


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


def _json_line(path: Path, number: int, line: str) -> Any:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise DataFormatError("not JSON; write one JSON value a line", file=str(path), line=number) from None
    if not isinstance(value, (str, dict)):
        raise DataFormatError("expected an object or a string id", file=str(path), line=number)
    if isinstance(value, dict) and not any(key in value for key in ("id", "_id", "doc_id")):
        raise DataFormatError('no "id"; lists are fused by id', file=str(path), line=number)
    return value


def _trec_run(path: Path, lines: list[tuple[int, str]]) -> dict[str, list[Any]]:
    per_query: dict[str, list[tuple[float, str]]] = {}
    for number, line in lines:
        parts = line.split()
        if len(parts) != 6:
            told = f"{len(parts)} columns; a TREC run has 6: qid Q0 docid rank score tag"
            raise DataFormatError(told, file=str(path), line=number)
        try:
            score = float(parts[4])
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise DataFormatError(f"score {parts[4]!r} is no finite number", file=str(path), line=number)
        per_query.setdefault(parts[0], []).append((score, parts[2]))
    # trec_eval ignores the rank column: scores decide, and equal scores go by descending document id.
    return {
        query: [{"id": id, "score": score} for score, id in sorted(entries, reverse=True)]
        for query, entries in per_query.items()
    }
