"""Documents from a file or a pipe, and back: plain lines, JSONL, a JSON list, CSV, passages of a PDF.

What a file is follows from its name and content. `write_documents` writes rows in the form they came in, so
that a command can be a filter between two others.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from resift.errors import DataFormatError, InputError
from resift.external.records import BODY_NAMES
from resift.ingest.readers import HTML, suffix_by_content
from resift.ingest.sources import decode
from resift.types import JsonObject, JsonValue

MAX_BYTES = 64 << 20
_READ_AS_PASSAGES = HTML | {
    ".pdf",
    ".docx",
    ".docm",
    ".pptx",
    ".pptm",
    ".xlsx",
    ".xlsm",
    ".epub",
    ".eml",
    ".ipynb",
}


class Documents:
    """Rows read from one file in one form, with what had to be flagged on the way."""

    def __init__(self, name: str, form: str) -> None:
        self.name = name
        self.form = form
        self.rows: list[JsonObject] = []
        self.flags: list[str] = []
        self.delimiter = ","


def input_file(named: str | None, *, expected: str) -> str:
    """Return the file to read: the one named, or `-` where something is piped in."""
    if named is not None:
        return named
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(f"Name a file with {expected}, or pipe them in.")
    return "-"


def read_documents(file: str, *, form: str | None = None) -> Documents:
    """Read the rows of a file, or of the standard input for `-`; an empty one is refused."""
    name = "stdin" if file == "-" else file
    data = _bytes(file, name)
    if form is None and Path(file).suffix.lower() in _READ_AS_PASSAGES:
        return _passages(file)
    if file == "-" and suffix_by_content(data) == ".pdf":
        raise DataFormatError("a PDF; name the file instead of piping it in", file=name)
    refuse_index(data, name, "documents to rerank; search it with: resift search")
    decoded = decode(data, file=name)
    found = Documents(name, form or _form(file, decoded.text))
    if decoded.flag:
        found.flags.append(decoded.flag)
    reader = {"lines": _lines, "jsonl": _json, "csv": _csv}[found.form]
    found.rows.extend(reader(decoded.text, found))
    if not found.rows:
        raise DataFormatError("the file is empty; expected one document a line, JSONL or CSV", file=name)
    return found


def refuse_index(data: bytes, name: str, expected: str) -> None:
    """Raise DataFormatError for an index where something else is needed; it starts like any SQLite file."""
    if data.startswith(b"SQLite format 3\0"):
        raise DataFormatError(f"this is an index or another SQLite file; pass {expected}", file=name)


def _passages(file: str) -> Documents:
    """Read a PDF, an office document, a page or a mail as the passages that `resift index` makes of it."""
    from collections import Counter

    from resift._internal.sync import run_sync
    from resift.ingest.chunking import ChunkSize, passages_of
    from resift.ingest.worker import FileReader

    async def read() -> Documents:
        found, copies, reader = Documents(file, "jsonl"), Counter[str](), FileReader()
        try:
            async for section in reader.sections(Path(file), name=file):
                found.flags += filter(None, (section.flag, section.problem))
                for row in passages_of(section, file, size=ChunkSize(), row_ids="own", copies=copies):
                    found.rows.append({key: row[key] for key in ("id", "text", "metadata")})
        finally:
            await reader.close()
        return found

    found = run_sync(read())
    if not found.rows:
        raise DataFormatError("no text was found in it", file=file)
    return found


def write_documents(out: TextIO, found: Documents, places: Iterable[tuple[int, float | None]]) -> None:
    """Write the rows at these places of the file, best first, in the file's own form.

    Lines stay as they were. Other rows get `score` and `rank`; what they had under these names before stands
    under `input_score` and `input_rank` (with one more `input_` each time the rows come through here again).
    """
    if found.form == "lines":
        out.writelines(f"{found.rows[at]['text']}\n" for at, _ in places)
        return
    ranked = [
        {**_set_aside(found.rows[at]), "score": value, "rank": rank}
        for rank, (at, value) in enumerate(places, start=1)
    ]
    if found.form == "csv":
        columns = list(dict.fromkeys(key for row in ranked for key in row))
        writer = csv.DictWriter(out, columns, delimiter=found.delimiter, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(ranked)
        return
    out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in ranked)


def _set_aside(row: JsonObject) -> JsonObject:
    """Return the row with `score` and `rank` free, also when it went through here before."""
    kept = dict(row)
    for key in ("score", "rank"):
        if key in kept:
            name = f"input_{key}"
            while name in row:
                name = f"input_{name}"
            kept = {name if own == key else own: value for own, value in kept.items()}
    return kept


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
        message = f"larger than {MAX_BYTES >> 20} MiB; index it with resift index, and search that"
        raise DataFormatError(message, file=name)
    return data


def _form(file: str, text: str) -> str:
    suffix = Path(file).suffix.lower()
    if suffix in (".csv", ".tsv"):
        return "csv"
    if suffix in (".jsonl", ".ndjson", ".json"):
        return "jsonl"
    if text.lstrip()[:1] == "{":
        return "jsonl"
    return "csv" if not suffix and _is_header(text.partition("\n")[0]) else "lines"


def _is_header(line: str) -> bool:
    """Whether a line names columns, a text's among them: a pipe has no file name that tells."""
    names = {name.strip().strip('"').lower() for name in re.split(r"[,;\t]", line)}
    return (
        len(names) > 1
        and not names.isdisjoint({"title", *BODY_NAMES})
        and not any(" " in name for name in names)
    )


def _lines(text: str, found: Documents) -> Iterator[JsonObject]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield {"id": str(number), "text": line.strip()}


def _json(text: str, found: Documents) -> Iterator[JsonObject]:
    if text.lstrip()[:1] == "[":
        rows = _parsed(text, found, line=None)
        yield from (_object(row, found, line=None) for row in rows)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _object(_parsed(line, found, line=number), found, line=number)


def _parsed(text: str, found: Documents, *, line: int | None) -> JsonValue:
    def constant(word: str) -> None:
        place = f"line {line}: " if line else ""
        found.flags.append(f"{place}{word} is no JSON value and was read as null")

    try:
        return json.loads(text, parse_constant=constant)
    except (ValueError, RecursionError):
        raise DataFormatError("not JSON; write one JSON object a line", file=found.name, line=line) from None


def _object(row: object, found: Documents, *, line: int | None) -> JsonObject:
    if isinstance(row, str):
        return {"text": row}
    if not isinstance(row, dict):
        message = f"a {type(row).__name__}; each document must be an object or a string"
        raise DataFormatError(message, file=found.name, line=line)
    return row


def _csv(text: str, found: Documents) -> Iterator[JsonObject]:
    csv.field_size_limit(MAX_BYTES)
    try:
        dialect: Any = csv.Sniffer().sniff(text[:4096], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    found.delimiter = dialect.delimiter
    reader = csv.DictReader(io.StringIO(text, newline=""), dialect=dialect, restkey="more", restval="")
    try:
        for row in reader:
            yield {str(key).strip(): value for key, value in row.items() if key is not None}
    except csv.Error as exc:
        raise DataFormatError(f"not CSV: {exc}", file=found.name, line=reader.line_num) from exc
