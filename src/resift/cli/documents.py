"""Documents from a file or a pipe: plain lines, JSONL, a JSON list or CSV, told apart by name and content."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from resift.errors import DataFormatError
from resift.ingest.decoding import decode

MAX_BYTES = 64 << 20
FORMATS = ("lines", "jsonl", "csv")


class Documents:
    """Rows read from one file, with what had to be flagged on the way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[dict[str, Any]] = []
        self.flags: list[str] = []


def read_documents(file: str, *, form: str | None = None) -> Documents:
    """Read the rows of a file, or of the standard input for `-`; an empty one is refused."""
    name = "stdin" if file == "-" else file
    decoded = decode(_bytes(file, name), file=name)
    found = Documents(name)
    if decoded.flag:
        found.flags.append(decoded.flag)
    reader = {"lines": _lines, "jsonl": _json, "csv": _csv}[form or _form(file, decoded.text)]
    found.rows.extend(reader(decoded.text, found))
    if not found.rows:
        raise DataFormatError("the file is empty; expected one document a line, JSONL or CSV", file=name)
    return found


def _bytes(file: str, name: str) -> bytes:
    if file == "-":
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        path = Path(file)
        if path.is_dir():
            raise DataFormatError("this is a folder; name a file", file=name)
        if not path.exists():
            raise DataFormatError("no such file", file=name)
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        told = f"larger than {MAX_BYTES >> 20} MiB; index it with resift index, and search that"
        raise DataFormatError(told, file=name)
    return data


def _form(file: str, text: str) -> str:
    suffix = Path(file).suffix.lower()
    if suffix in (".csv", ".tsv"):
        return "csv"
    if suffix in (".jsonl", ".ndjson", ".json"):
        return "jsonl"
    return "jsonl" if text.lstrip()[:1] == "{" else "lines"


def _lines(text: str, found: Documents) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield {"id": str(number), "text": line.strip()}


def _json(text: str, found: Documents) -> Iterator[dict[str, Any]]:
    if text.lstrip()[:1] == "[":
        rows = _parsed(text, found, line=None)
        yield from (_object(row, found, line=None) for row in rows)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _object(_parsed(line, found, line=number), found, line=number)


def _parsed(text: str, found: Documents, *, line: int | None) -> Any:
    def constant(word: str) -> None:
        place = f"line {line}: " if line else ""
        found.flags.append(f"{place}{word} is no JSON value and was read as null")

    try:
        return json.loads(text, parse_constant=constant)
    except (ValueError, RecursionError):
        raise DataFormatError("not JSON; write one JSON object a line", file=found.name, line=line) from None


def _object(row: Any, found: Documents, *, line: int | None) -> dict[str, Any]:
    if isinstance(row, str):
        return {"text": row}
    if not isinstance(row, dict):
        told = f"a {type(row).__name__}; each document must be an object or a string"
        raise DataFormatError(told, file=found.name, line=line)
    return row


def _csv(text: str, found: Documents) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(MAX_BYTES)
    try:
        dialect: Any = csv.Sniffer().sniff(text[:4096], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    reader = csv.DictReader(io.StringIO(text, newline=""), dialect=dialect, restkey="more", restval="")
    try:
        for row in reader:
            yield {str(key).strip(): value for key, value in row.items() if key is not None}
    except csv.Error as exc:
        raise DataFormatError(f"not CSV: {exc}", file=found.name, line=reader.line_num) from exc
