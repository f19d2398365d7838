"""Jupyter notebooks: text and code cells in order, with printed output, without pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from resift.errors import DataFormatError
from resift.ingest.formats.markdown import flagged, markdown_sections
from resift.ingest.sections import Section
from resift.ingest.sources import Source
from resift.types import JsonMapping

_FENCE = "~" * 12  # longer than any fence that cells have themselves
_MOST_OUTPUT = 2_000  # characters of a cell's output; more is a log


def read_notebook(source: Source) -> Iterator[Section]:
    """Yield one section per heading of the notebook's Markdown, code and its printed output beneath."""
    decoded = source.text()
    try:
        cells = json.loads(decoded.text)["cells"]
        text = "\n\n".join(filter(None, map(_cell, cells)))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as exc:
        raise DataFormatError("Not a readable notebook.", file=source.name) from exc
    yield from flagged(markdown_sections(text), decoded.flag)


def _cell(cell: JsonMapping) -> str:
    text = _joined(cell.get("source"))
    if cell.get("cell_type") != "code":
        return text
    printed = "\n".join(filter(None, map(_output, cell.get("outputs") or [])))[:_MOST_OUTPUT]
    return "\n".join([_FENCE, text, *([printed] if printed else []), _FENCE]) if text or printed else ""


def _output(output: JsonMapping) -> str:
    if "text" in output:
        return _joined(output["text"])
    data = output.get("data")
    return _joined(data.get("text/plain")) if isinstance(data, Mapping) else ""


def _joined(lines: object) -> str:
    if isinstance(lines, list):
        return "".join(line for line in lines if isinstance(line, str))
    return lines if isinstance(lines, str) else ""
