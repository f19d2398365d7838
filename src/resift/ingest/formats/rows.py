"""JSONL, CSV and Parquet: each row is a document of its own, read one at a time."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence

from resift.errors import DataFormatError, MissingExtraError, require
from resift.external.records import ID_KEYS, RecordText, no_text, read_metadata, read_text, table_rows
from resift.ingest.sections import Section
from resift.ingest.sources import Source
from resift.types import JsonMapping, JsonObject

_NOT_METADATA = frozenset({"score", "embedding", "vector"})
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?(?:[eE][+-]?\d{1,3})?")
_TRUTH = {"true": True, "false": False}
_PARQUET_ROWS = 64
_MOST_NAME = 200
"""Characters of a column's name, which stands in the text and the metadata of every row."""


class Rows:
    """Turns rows of one file into sections and notices ids that come twice."""

    def __init__(self, text_keys: tuple[str, ...] | None = None) -> None:
        self._text_keys = text_keys
        self._seen: dict[str, int] = {}

    def section(
        self,
        row: JsonMapping,
        number: int,
        *,
        typed: JsonMapping | None = None,
        flag: str = "",
        position: int = 0,
    ) -> Section:
        """Return the section of a row; a second row of an id is a problem, the first one stays.

        `typed` is given for the row of a table: the same cells as numbers and the like, for the metadata. A
        table's row without a text field is read as "column: value" lines.
        """
        values = row if typed is None else typed
        id = _id(values)
        if id is not None and id in self._seen:
            problem = f"line {number}: the id {id[:100]!r} stands in line {self._seen[id]} already"
            return Section("", problem=problem, position=position)
        if id is not None:
            self._seen[id] = number
        text = read_text(row, self._text_keys)
        as_lines = typed is not None and self._text_keys is None and text.name_only
        kept = read_metadata(values, RecordText() if as_lines else text, without=_NOT_METADATA)
        metadata = {key: value for key, value in kept.items() if value not in (None, "")}
        if id is None:
            metadata["line"] = number  # rows with an id are found by it, and may move without changing
        for key in [key for key, value in metadata.items() if not _is_json(value)]:
            del metadata[key]
            flag = f"line {number}: {key[:100]!r} is no JSON value and was left out"
        if as_lines:
            text = _lines(row)
        if not text.text.strip():
            flag = f"line {number} has no text: {no_text([row], self._text_keys, '--text-key')}"
        return Section(
            text.body.strip(), id, text.title.strip(), metadata, flag, position=position, fields=text.fields
        )


def read_jsonl(source: Source) -> Iterator[Section]:
    """Yield a section per line; a line that cannot be read is a problem and the others are taken."""
    encoding = source.encoding()
    rows, flag = Rows(source.text_keys), encoding.flag
    for number, text, position in source.lines(encoding.name, newline="\n"):
        if text is None:
            most = source.limits.line_bytes >> 20
            yield Section("", problem=f"line {number}: longer than {most} MB", position=position)
        elif text.strip("\ufeff \t\r\n"):
            row, problem = _json_row(text)
            if row is None:
                yield Section("", problem=f"line {number}: {problem}", position=position)
            else:
                yield rows.section(row, number, flag=flag, position=position)
                flag = ""


def read_csv(source: Source) -> Iterator[Section]:
    """Yield a section per row; a row without a text field is "column: value" lines.

    A column whose cells are all numbers, or all true and false, is kept as such.
    """
    encoding = source.encoding()
    delimiter = _delimiter(source, encoding.name)
    kinds = _column_kinds(_csv_rows(source, encoding.name, delimiter))
    rows, flag = Rows(source.text_keys), encoding.flag
    for number, row, position in _csv_rows(source, encoding.name, delimiter):
        typed = {key: kinds[key](value) if value else "" for key, value in row.items()}
        yield rows.section(row, number, typed=typed, flag=flag, position=position)
        flag = ""


def read_parquet(source: Source) -> Iterator[Section]:
    """Yield a section per row, as for CSV; cells are typed as the file declares them."""
    try:
        parquet = require("pyarrow.parquet", extra="batch")
    except MissingExtraError as exc:
        raise DataFormatError(str(exc), file=source.name) from exc
    rows, number = Rows(source.text_keys), 0
    try:
        for batch in parquet.ParquetFile(source.file).iter_batches(_PARQUET_ROWS, use_threads=False):
            for row in table_rows(batch):
                number += 1
                yield rows.section(row, number, typed=row)
    except (OSError, ValueError) as exc:  # what pyarrow raises for damaged files
        raise DataFormatError(
            f"Not a readable Parquet file ({type(exc).__name__}).", file=source.name
        ) from exc


def _lines(row: JsonMapping) -> RecordText:
    cells = {key: value for key, value in row.items() if value not in ("", None) and key not in ID_KEYS}
    body = "\n".join(f"{key}: {value}" for key, value in cells.items())
    return RecordText(body=body, fields=tuple(cells))


def _csv_rows(source: Source, encoding: str, delimiter: str) -> Iterator[tuple[int, dict[str, str], int]]:
    csv.field_size_limit(source.limits.line_bytes)
    position = 0

    def lines() -> Iterator[str]:
        nonlocal position
        for line in source.lines(encoding):
            position = line.position
            if line.text is None or "\0" in line.text:
                raise DataFormatError("Not CSV: a line without end.", file=source.name, line=line.number)
            yield line.text

    reader = csv.reader(lines(), delimiter=delimiter)
    header: list[str] | None = None
    try:
        for cells in reader:
            if header is None:
                header = column_names(cells)
            elif any(cell.strip() for cell in cells):
                yield reader.line_num, _named(header, cells), position
    except csv.Error as exc:
        raise DataFormatError(f"Not CSV: {exc}.", file=source.name, line=reader.line_num) from exc


def column_names(cells: Iterable[object]) -> list[str]:
    """Return a name for each column, no two the same: equal ones would hide each other's cells."""
    names: dict[str, None] = {}
    tried: dict[str, int] = {}
    for number, cell in enumerate(cells, start=1):
        written = "" if cell is None else str(cell).lstrip("\ufeff").strip()[:_MOST_NAME]
        name = wanted = written or f"column {number}"
        while name in names:
            # On from where the last of this name found a place: looking again would be quadratic.
            tried[wanted] = max(tried.get(wanted, 0) + 1, number)
            name = f"{wanted} {tried[wanted]}"
        names[name] = None
    return list(names)


def _named(header: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    row = {name: cell.strip() for name, cell in zip(header, cells, strict=False)}
    if len(cells) > len(header):
        row["more"] = ", ".join(cell.strip() for cell in cells[len(header) :])
    return {name: row.get(name, "") for name in (*header, *(["more"] if "more" in row else []))}


def _delimiter(source: Source, encoding: str) -> str:
    """Return the separator that the first line has most of, outside quotes."""
    if source.suffix == ".tsv":
        return "\t"
    first = next((line.text for line in source.lines(encoding) if line.text and line.text.strip()), "")
    bare = "".join(first.split('"')[::2])
    return max(",;\t|", key=bare.count)


def _column_kinds(rows: Iterable[tuple[int, dict[str, str], int]]) -> JsonObject:
    kinds: JsonObject = {}
    for _, row, _ in rows:
        for name, value in row.items():
            if value and kinds.get(name) is not str:
                kind = _number if _is_number(value) else _truth if value.lower() in _TRUTH else str
                kinds[name] = kind if kinds.get(name, kind) is kind else str
            else:
                kinds.setdefault(name, None)
    return {name: kind or str for name, kind in kinds.items()}


def _is_number(value: str) -> bool:
    return _NUMBER.fullmatch(value) is not None and math.isfinite(float(value))


def _number(value: str) -> int | float:
    return int(value) if value.lstrip("-").isdigit() else float(value)


def _truth(value: str) -> bool:
    return _TRUTH[value.lower()]


def _json_row(text: str) -> tuple[JsonMapping | None, str]:
    try:
        row = json.loads(text.strip("\ufeff"))
    except (ValueError, RecursionError):  # also for numbers with thousands of digits
        return None, "not a JSON object; one object per line is needed"
    if isinstance(row, str):
        return {"text": row}, ""
    if not isinstance(row, dict):
        return None, f"a {type(row).__name__}; each line must be an object with a text"
    return row, ""


def _id(row: JsonMapping) -> str | None:
    for key in ID_KEYS:
        value = row.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            try:
                text = str(value)
            except ValueError:  # an integer too long to be written down
                continue
            if text.strip():
                return text
    return None


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return True
