"""Excel workbooks: each row of each sheet is a document, its cells typed as they are."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from resift.errors import DataFormatError, MissingExtraError, require
from resift.ingest.formats.packages import opened_package
from resift.ingest.formats.rows import Rows, column_names
from resift.ingest.sections import Section
from resift.ingest.sources import Source

_MOST_COLUMNS = 500


def read_xlsx(source: Source) -> Iterator[Section]:
    """Yield a section per row; the first row with text in each sheet names the columns."""
    try:
        openpyxl = require("openpyxl", extra="files")
    except MissingExtraError as exc:
        raise DataFormatError(str(exc), file=source.name) from exc
    with opened_package(source), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of styles and extensions that do not matter here
        try:
            book = openpyxl.load_workbook(source.file, read_only=True, data_only=True)
            for sheet in book.worksheets:
                yield from _rows(sheet, source.text_keys)
        except (TypeError, AttributeError, AssertionError, SyntaxError) as exc:
            raise DataFormatError(
                f"Not a readable .xlsx file ({type(exc).__name__}).", file=source.name
            ) from exc


def _rows(sheet: Any, text_keys: tuple[str, ...] | None) -> Iterator[Section]:
    header: list[str] | None = None
    rows, only = Rows(text_keys), None
    if (sheet.max_column or 0) > _MOST_COLUMNS:
        most = f"{sheet.max_column - _MOST_COLUMNS} columns after the first {_MOST_COLUMNS}"
        yield Section(
            "",
            problem=f"sheet {sheet.title[:40]!r}: {most} were not read",
        )
    width = min(_MOST_COLUMNS, sheet.max_column or _MOST_COLUMNS)
    for number, cells in enumerate(sheet.iter_rows(values_only=True, max_col=width), start=1):
        # A cell in the last row of a sheet brings a million empty rows with it.
        if cells.count(None) == len(cells):
            continue
        values = [_plain(cell) for cell in cells]
        if all(value in ("", None) for value in values):
            continue
        if header is None:
            header = column_names(values)
            only = values
            continue
        only = None
        yield _section(rows, header, values, sheet.title, number)
    if only is not None:
        # A sheet of one row has no columns to name.
        text = "\n".join(str(value) for value in only if value not in ("", None))
        yield Section(text, metadata={"sheet": sheet.title, "row": 1})


def _section(rows: Rows, header: Sequence[str], values: Sequence[Any], sheet: str, number: int) -> Section:
    row = {name: value for name, value in zip(header, values, strict=False) if value not in ("", None)}
    found = rows.section({name: str(value) for name, value in row.items()}, number, typed=row)
    metadata = {**found.metadata, "sheet": sheet, "row": number}
    metadata.pop("line", None)
    return replace(found, metadata=metadata)


def _plain(cell: object) -> Any:
    """Return a cell as JSON has it; dates as ISO 8601, which sorts as dates do."""
    if isinstance(cell, dt.datetime):
        midnight = cell.time() == dt.time()
        return cell.date().isoformat() if midnight else cell.isoformat()
    if isinstance(cell, (dt.date, dt.time)):
        return cell.isoformat()
    if isinstance(cell, dt.timedelta):
        return str(cell)
    return cell.strip() if isinstance(cell, str) else cell
