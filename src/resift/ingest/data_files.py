"""Read data files: JSONL, CSV, Parquet and Excel by row; JSON, YAML, TOML and XML as named values."""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import re
import tomllib
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

from resift.errors import DataFormatError
from resift.external.candidates import table_rows
from resift.external.records import ID_KEYS, RecordText, no_text, read_metadata, read_text
from resift.ingest.chunking import MAX_TITLE, SEPARATOR, Section, flag_first
from resift.ingest.sources import Source, open_zip, plain_sections

Row = Mapping[str, object]

_NOT_METADATA = frozenset({"score", "embedding", "vector"})
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_PARQUET_ROWS = 64
_MAX_COLUMNS = 500
_MAX_COLUMN_NAME = 200  # characters; every row repeats the name in its text and metadata


class RowReader:
    """Turns the rows of one file into sections and reports duplicate ids."""

    def __init__(self, text_keys: tuple[str, ...] | None = None) -> None:
        self._text_keys = text_keys
        self._lines: dict[str, int] = {}

    def section(self, row: Row, number: int, *, typed: Row | None = None, flag: str = "", position: int = 0) -> Section:
        """Convert a row to a section. A duplicate id results in a section with a problem.

        `typed` contains the cells of a table row with their types; without a text field, it is read as lines.
        """
        values = row if typed is None else typed
        id = _row_id(values)
        if id is not None and id in self._lines:
            problem = f"line {number}: the id {id[:100]!r} is already on line {self._lines[id]}"
            return Section("", problem=problem, position=position)
        if id is not None:
            self._lines[id] = number
        text = read_text(row, self._text_keys)
        as_lines = typed is not None and self._text_keys is None and text.name_only
        fields = read_metadata(values, RecordText() if as_lines else text, without=_NOT_METADATA)
        metadata: dict[str, object] = {}
        for key, value in fields.items():
            if not _is_json(value):
                flag = f"line {number}: {key[:100]!r} is not a JSON value and was left out"
            elif value not in (None, ""):
                metadata[key] = value
        if id is None:
            metadata["line"] = number  # rows with an id do not need it, and they may move to another line
        if as_lines:
            cells = {key: cell for key, cell in row.items() if cell not in ("", None) and key not in ID_KEYS}
            lines = "\n".join(f"{key}: {cell}" for key, cell in cells.items())
            text = RecordText(body=lines, fields=tuple(cells))
        if not text.text.strip():
            flag = f"line {number} has no text: {no_text([row], self._text_keys, '--text-key')}"
        return Section(text.body.strip(), id, text.title.strip(), metadata, flag, position=position, fields=text.fields)


def _row_id(row: Row) -> str | None:
    for value in map(row.get, ID_KEYS):
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            with suppress(ValueError):  # an integer with too many digits
                if str(value).strip():
                    return str(value)
    return None


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def read_jsonl(source: Source) -> Iterator[Section]:
    """Yield a section per line. An unreadable line is reported as a problem, and reading continues."""
    encoding, flag = source.encoding()
    rows = RowReader(source.text_keys)
    for number, text, position in source.lines(encoding, newline="\n"):
        if text is None:
            limit = source.limits.line_bytes >> 20
            yield Section("", problem=f"line {number}: longer than {limit} MB", position=position)
            continue
        if not text.strip("\ufeff \t\r\n"):
            continue
        problem = "not a JSON object; write one object per line"
        row: object = None
        with suppress(ValueError, RecursionError):  # numbers with thousands of digits also raise ValueError
            row = json.loads(text.strip("\ufeff"))
            problem = f"a {type(row).__name__}; each line must be an object with a text field"
        if isinstance(row, (str, dict)):
            row = {"text": row} if isinstance(row, str) else row
            yield rows.section(row, number, flag=flag, position=position)
            flag = ""
        else:
            yield Section("", problem=f"line {number}: {problem}", position=position)


def read_csv(source: Source) -> Iterator[Section]:
    """Yield a section per row. A column whose cells are all numbers, or all true or false, keeps that type."""
    encoding, flag = source.encoding()
    # The delimiter is the most frequent separator in the first line, outside quotes.
    first = next((line.text for line in source.lines(encoding) if line.text and line.text.strip()), "")
    unquoted = "".join(first.split('"')[::2])
    delimiter = "\t" if source.suffix == ".tsv" else max(",;\t|", key=unquoted.count)
    typed_columns = _typed_columns(_csv_rows(source, encoding, delimiter))
    rows = RowReader(source.text_keys)
    for number, row, position in _csv_rows(source, encoding, delimiter):
        # Numbers, true and false are spelled as in JSON, except for case.
        typed: Row = row | {key: json.loads(row[key].lower()) for key in typed_columns if row.get(key)}
        yield rows.section(row, number, typed=typed, flag=flag, position=position)
        flag = ""


def _csv_rows(source: Source, encoding: str, delimiter: str) -> Iterator[tuple[int, dict[str, str], int]]:
    """Yield the line number, the cells by column name, and the position of each row."""
    csv.field_size_limit(source.limits.line_bytes)
    position = 0

    def lines() -> Iterator[str]:
        nonlocal position
        for line in source.lines(encoding):
            position = line.position
            if line.text is None or "\0" in line.text:
                raise DataFormatError("Not CSV: a line is too long or has a NUL.", file=source.name, line=line.number)
            yield line.text

    reader = csv.reader(lines(), delimiter=delimiter)
    header: list[str] | None = None
    try:
        for cells in reader:
            if header is None:
                header = column_names(cells)
            elif any(cell.strip() for cell in cells):
                row = dict.fromkeys(header, "")
                row.update((name, cell.strip()) for name, cell in zip(header, cells, strict=False))
                if len(cells) > len(header):
                    row["more"] = ", ".join(cell.strip() for cell in cells[len(header) :])
                yield reader.line_num, row, position
    except csv.Error as exc:
        raise DataFormatError(f"Not CSV: {exc}.", file=source.name, line=reader.line_num) from exc


def column_names(cells: Iterable[object]) -> list[str]:
    """Return a unique name for each column, so that no cell overwrites another."""
    names: dict[str, None] = {}
    last_number: dict[str, int] = {}
    for number, cell in enumerate(cells, start=1):
        label = "" if cell is None else str(cell).lstrip("\ufeff").strip()[:_MAX_COLUMN_NAME]
        name = base = label or f"column {number}"
        while name in names:
            # Continue from the last number of this name, because starting over would take quadratic time.
            last_number[base] = max(last_number.get(base, 0) + 1, number)
            name = f"{base} {last_number[base]}"
        names[name] = None
    return list(names)


def _typed_columns(rows: Iterable[tuple[int, dict[str, str], int]]) -> set[str]:
    """Return the columns whose cells are all numbers, or all true or false."""
    kinds: dict[str, type] = {}
    for _, row, _ in rows:
        for name, value in row.items():
            if value and kinds.get(name) is not str:
                is_number = _NUMBER.fullmatch(value) is not None and math.isfinite(float(value))
                kind = float if is_number else bool if value.lower() in ("true", "false") else str
                kinds[name] = kind if kinds.get(name, kind) is kind else str
    return {name for name, kind in kinds.items() if kind is not str}


def read_parquet(source: Source) -> Iterator[Section]:
    """Yield a section per row, as for CSV, using the column types of the file."""
    parquet = source.require("pyarrow.parquet", extra="batch")
    rows, number = RowReader(source.text_keys), 0
    try:
        for batch in parquet.ParquetFile(source.file).iter_batches(_PARQUET_ROWS, use_threads=False):
            for row in table_rows(batch):
                number += 1
                yield rows.section(row, number, typed=row)
    except (OSError, ValueError) as exc:  # raised by pyarrow for damaged files
        message = f"Not a readable Parquet file ({type(exc).__name__})."
        raise DataFormatError(message, file=source.name) from exc


def read_xlsx(source: Source) -> Iterator[Section]:
    """Yield a section per row. The first row with text in each sheet names the columns."""
    openpyxl = source.require("openpyxl")
    with open_zip(source), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # openpyxl warns about styles and extensions that do not matter here
        book = openpyxl.load_workbook(source.file, read_only=True, data_only=True)
        for sheet in book.worksheets:
            yield from _read_sheet(sheet, source.text_keys)


def _read_sheet(sheet: Any, text_keys: tuple[str, ...] | None) -> Iterator[Section]:
    header: list[str] | None = None
    only_row: Sequence[object] | None = None
    rows = RowReader(text_keys)
    columns = sheet.max_column or 0
    if columns > _MAX_COLUMNS:
        extra = f"{columns - _MAX_COLUMNS} columns after the first {_MAX_COLUMNS}"
        yield Section("", problem=f"sheet {sheet.title[:40]!r}: {extra} were not read")
    width = min(_MAX_COLUMNS, columns or _MAX_COLUMNS)
    for number, cells in enumerate(sheet.iter_rows(values_only=True, max_col=width), start=1):
        # A single cell in the last row of a sheet results in a million empty rows before it.
        if cells.count(None) == len(cells):
            continue
        values = [_to_json_value(cell) for cell in cells]
        if all(value in ("", None) for value in values):
            continue
        if header is None:
            header, only_row = column_names(values), values
            continue
        only_row = None
        row = {name: value for name, value in zip(header, values, strict=False) if value not in ("", None)}
        section = rows.section({name: str(value) for name, value in row.items()}, number, typed=row)
        metadata = {key: value for key, value in section.metadata.items() if key != "line"}
        yield replace(section, metadata={**metadata, "sheet": sheet.title, "row": number})
    if only_row is not None:
        # A sheet with a single row has no column names.
        text = "\n".join(str(value) for value in only_row if value not in ("", None))
        yield Section(text, metadata={"sheet": sheet.title, "row": 1})


def _to_json_value(cell: object) -> object:
    """Return a cell as a JSON value. Dates are written in ISO 8601, which sorts chronologically."""
    if isinstance(cell, dt.datetime) and cell.time() == dt.time():
        return cell.date().isoformat()
    if isinstance(cell, (dt.date, dt.time)):
        return cell.isoformat()
    return str(cell).strip() if isinstance(cell, (str, dt.timedelta)) else cell


_MAX_VALUES = 500_000  # a one-kilobyte file can expand to more by repeating parts of itself
_MAX_DEPTH = 50
_MAX_NAME = 200  # characters
_PIECE = 200_000  # characters per section
_BLOCK = 65_536


def read_json(source: Source) -> Iterator[Section]:
    """Yield a document per object of a list, as in JSONL. Other JSON is read as "name › name: value" lines."""
    yield from _read_values(source, json.loads, "JSON")


def read_yaml(source: Source) -> Iterator[Section]:
    """Yield the values with their paths. Invalid YAML is read as plain text."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    def load(text: str) -> object:
        try:
            values = list(yaml.load_all(text, Loader=loader))  # one of the two safe loaders
        except (yaml.YAMLError, TypeError, AttributeError) as exc:  # the loaders' errors, including those for bad tags
            raise ValueError from exc
        return values[0] if len(values) == 1 else values

    yield from _read_values(source, load, "YAML")


def read_toml(source: Source) -> Iterator[Section]:
    """Yield the values with their paths. Invalid TOML is read as plain text."""

    def load(text: str) -> object:
        # Parsing time grows with the square of the number of parts in a key.
        if any(line.partition("=")[0].count(".") > _MAX_DEPTH for line in text.splitlines()):
            raise ValueError
        return tomllib.loads(text)

    yield from _read_values(source, load, "TOML")


def _read_values(source: Source, load: Callable[[str], object], format: str) -> Iterator[Section]:
    """Yield the values of a file. A file that is too large or invalid is read as plain text, with a flag."""
    if not source.parseable:
        yield from plain_sections(source, flag="very large: read as plain text")
        return
    decoded = source.text()
    try:
        value = load(decoded.text)
    except (ValueError, RecursionError):
        yield from plain_sections(source, flag=f"not valid {format}, read as plain text")
        return
    keys = source.text_keys
    rows = value if format == "JSON" and isinstance(value, list) else []
    if rows and all(isinstance(row, dict) and (keys is not None or not read_text(row).name_only) for row in rows):
        yield from map(RowReader(keys).section, rows, count(1))
    else:
        yield from flag_first(_list_values(value), decoded.flag)


def _list_values(root: object) -> Iterator[Section]:
    """Yield "name › name: value" lines in sections of limited size, without recursion."""
    lines: list[str] = []
    length = 0
    too_deep = False
    pending: list[tuple[tuple[str, ...], object]] = [((), root)]
    for _ in range(_MAX_VALUES):
        if not pending:
            break
        path, value = pending.pop()
        if isinstance(value, (Mapping, list, tuple, set)):
            if len(path) >= _MAX_DEPTH:
                too_deep = too_deep or bool(value)
            elif isinstance(value, Mapping):  # reversed, because `pop` takes the last item
                pending += [((*path, str(key)[:_MAX_NAME]), child) for key, child in reversed(list(value.items()))]
            else:
                pending += [(path, child) for child in reversed(list(value))]
        elif value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value).strip()
            if text:
                # Keep the end of a long path, because the innermost names are the most specific.
                names = SEPARATOR.join(path)[-MAX_TITLE:]
                lines.append(f"{names}: {text}" if path else text)
                length += len(lines[-1])
        if length > _PIECE:
            yield Section("\n".join(lines))
            lines, length = [], 0
    if lines:
        yield Section("\n".join(lines))
    if pending:
        yield Section("", problem=f"values after the first {_MAX_VALUES:,} were not read")
    elif too_deep:
        yield Section("", problem=f"values nested deeper than {_MAX_DEPTH} levels were not read")


def read_xml(source: Source) -> Iterator[Section]:
    """Yield the text of all elements and attributes in order, without building the tree in memory."""
    source.file.seek(0)
    lines = _XmlLines()
    parser = ET.XMLParser(target=lines)  # noqa: S314 - expat limits the expansion of entities
    try:
        while block := source.file.read(_BLOCK):
            parser.feed(block)
            if lines.length > _PIECE:
                yield Section(lines.take(), position=source.file.tell())
        parser.close()
    except (ET.ParseError, ValueError, LookupError) as exc:
        if source.file.tell() > _BLOCK:
            raise DataFormatError(f"Not valid XML ({type(exc).__name__}).", file=source.name) from exc
        yield from plain_sections(source, flag="not valid XML, read as plain text")
        return
    if lines.length:
        yield Section(lines.take(), position=source.size)


class _XmlLines:
    """Receives the parser's events and collects a line for each piece of text and each attribute."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._words: list[str] = []
        self.length = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.end(tag)
        for name, value in attributes.items():
            if value.strip():
                self._add(f"{name.rpartition('}')[2]}: {value}")

    def data(self, text: str) -> None:
        self._words.append(text)
        self.length += len(text)

    def take(self) -> str:
        self.end()
        text = "\n".join(self._lines)
        self._lines, self.length = [], 0
        return text

    def end(self, tag: str = "") -> None:
        line = " ".join("".join(self._words).split())
        self._words = []
        if line:
            self._add(line)

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self.length += len(line)
