"""Read JSON, YAML, TOML and XML: every value with the path of names that leads to it."""

from __future__ import annotations

import json
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from typing import TypeGuard

from resift.errors import DataFormatError
from resift.external.records import read_text
from resift.ingest.sections import MAX_TITLE, SEPARATOR, Section, flag_first, plain_sections
from resift.ingest.sources import Source
from resift.ingest.tables import RowReader

_MAX_VALUES = 500_000  # a file of a kilobyte can hold more by repeating its own parts
_MAX_DEPTH = 50
_MAX_NAME = 200  # characters
_PIECE = 200_000  # characters per section
_BLOCK = 65_536


def read_json(source: Source) -> Iterator[Section]:
    """Yield a document per object of a list, as in JSONL; other JSON as "name › name: value" lines."""
    yield from _read_values(source, json.loads, "JSON")


def read_yaml(source: Source) -> Iterator[Section]:
    """Yield the values with their paths. Invalid YAML is read as plain text."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    def load(text: str) -> object:
        try:
            values = list(yaml.load_all(text, Loader=loader))  # one of the two safe loaders
        except (yaml.YAMLError, TypeError, AttributeError) as exc:  # the loaders' errors, also for bad tags
            raise ValueError from exc
        return values[0] if len(values) == 1 else values

    yield from _read_values(source, load, "YAML")


def read_toml(source: Source) -> Iterator[Section]:
    """Yield the values with their paths. Invalid TOML is read as plain text."""
    yield from _read_values(source, tomllib.loads, "TOML")


def _read_values(source: Source, load: Callable[[str], object], format: str) -> Iterator[Section]:
    """Yield the values of a file; read one that is too large or invalid as plain text, with a flag."""
    if not source.parseable:
        yield from plain_sections(source, flag="very large: read as plain text")
        return
    decoded = source.text()
    try:
        value = load(decoded.text)
    except (ValueError, RecursionError):
        yield from plain_sections(source, flag=f"not valid {format}, read as plain text")
        return
    if format == "JSON" and _is_list_of_rows(value, source.text_keys):
        rows = RowReader(source.text_keys)
        yield from (rows.section(row, number) for number, row in enumerate(value, start=1))
    else:
        yield from flag_first(_list_values(value), decoded.flag)


def _is_list_of_rows(value: object, text_keys: tuple[str, ...] | None) -> TypeGuard[list[dict[str, object]]]:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(row, dict) and (text_keys is not None or not read_text(row).name_only) for row in value
        )
    )


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
            if len(path) < _MAX_DEPTH:
                pending += _children(path, value)
            else:
                too_deep = too_deep or bool(value)
        elif value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value).strip()
            if text:
                # The end of a long path is kept: the innermost names are the most specific.
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


def _children(
    path: tuple[str, ...], value: Mapping[object, object] | list[object] | tuple[object, ...] | set[object]
) -> list[tuple[tuple[str, ...], object]]:
    """Return the values inside a mapping or a list, last first."""
    if isinstance(value, Mapping):
        return [((*path, str(key)[:_MAX_NAME]), child) for key, child in reversed(list(value.items()))]
    return [(path, child) for child in reversed(list(value))]


def read_xml(source: Source) -> Iterator[Section]:
    """Yield the text of all elements and attributes in order, without holding the tree in memory."""
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
        self._end_line()
        for name, value in attributes.items():
            if value.strip():
                self._add(f"{name.rpartition('}')[2]}: {value}")

    def data(self, text: str) -> None:
        self._words.append(text)
        self.length += len(text)

    def end(self, tag: str) -> None:
        self._end_line()

    def close(self) -> None:
        self._end_line()

    def take(self) -> str:
        self._end_line()
        text = "\n".join(self._lines)
        self._lines, self.length = [], 0
        return text

    def _end_line(self) -> None:
        line = " ".join("".join(self._words).split())
        self._words = []
        if line:
            self._add(line)

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self.length += len(line)
