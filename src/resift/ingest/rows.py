"""JSONL and CSV: each row is a document of its own."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from resift.candidates import ID_KEYS, TEXT_KEYS
from resift.errors import DataFormatError
from resift.ingest.decoding import decode, is_wide
from resift.ingest.sections import Section

_NOT_METADATA = frozenset({*ID_KEYS, "text", "content", "metadata", "score", "embedding", "vector"})


def jsonl_sections(path: Path, *, name: str) -> Iterator[Section]:
    """Yield a section per line; reads line by line, so that files larger than memory work."""
    seen: dict[str, int] = {}
    position = 0
    for number, raw in enumerate(_lines(path, name), start=1):
        position += len(raw)
        decoded = decode(raw, file=name)
        if not decoded.text.strip():
            continue
        row = _json_row(decoded.text, name, number)
        yield _from_row(row, seen, name=name, number=number, flag=decoded.flag, position=position)


def csv_sections(text: str, *, name: str) -> Iterator[Section]:
    """Yield a section per row; without a text, content or title column the row is "column: value" lines."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    seen: dict[str, int] = {}
    try:
        dialect: Any = csv.Sniffer().sniff(text[:4096], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    reader = csv.DictReader(io.StringIO(text, newline=""), dialect=dialect, restkey="more", restval="")
    try:
        for row in reader:
            plain = {str(key).strip(): _cell(value) for key, value in row.items() if key is not None}
            yield _from_row(_with_text(plain), seen, name=name, number=reader.line_num)
    except csv.Error as exc:
        raise DataFormatError(f"Not CSV: {exc}.", file=name, line=reader.line_num) from exc


def _lines(path: Path, name: str) -> Iterator[bytes]:
    with path.open("rb") as file:
        if is_wide(file.read(4)):
            yield from decode(path.read_bytes(), file=name).text.encode().splitlines(keepends=True)
            return
        file.seek(0)
        yield from file


def _json_row(text: str, name: str, number: int) -> Mapping[str, Any]:
    try:
        row = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as exc:
        raise DataFormatError(
            "Not a JSON object. One object per line is needed.", file=name, line=number
        ) from exc
    if isinstance(row, str):
        return {"text": row}
    if not isinstance(row, dict):
        kind = type(row).__name__
        raise DataFormatError(f"A {kind}; each line must be an object with a text.", file=name, line=number)
    return row


def _from_row(
    row: Mapping[str, Any],
    seen: dict[str, int],
    *,
    name: str,
    number: int,
    flag: str = "",
    position: int = 0,
) -> Section:
    id = _id(row)
    if id is not None:
        if id in seen:
            raise DataFormatError(f"The id {id!r} stands in line {seen[id]} already.", file=name, line=number)
        seen[id] = number
    title, text = _text(row, "title"), _text(row, "text") or _text(row, "content")
    nested = row.get("metadata")
    metadata = {
        **(nested if isinstance(nested, dict) else {}),
        **{key: value for key, value in row.items() if key not in _NOT_METADATA and value not in (None, "")},
    }
    if id is None:
        metadata["line"] = number  # rows with an id are found by it, and may move without changing
    odd = [key for key, value in metadata.items() if not _is_json(value)]
    for key in odd:
        del metadata[key]
        flag = f"line {number}: {key!r} is no JSON value and was left out"
    if not (title or text):
        flag = f"line {number} has none of {', '.join(TEXT_KEYS)}"
    return Section(text or title, id, title if text else "", metadata, flag, position)


def _id(row: Mapping[str, Any]) -> str | None:
    for key in ID_KEYS:
        value = row.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value).strip():
            return str(value)
    return None


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return value.strip() if isinstance(value, str) else ""


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value or "").strip()


def _with_text(row: Mapping[str, str]) -> Mapping[str, str]:
    if any(row.get(key) for key in TEXT_KEYS):
        return row
    lines = [f"{key}: {value}" for key, value in row.items() if value and key not in ID_KEYS]
    return {**row, "text": "\n".join(lines)}
