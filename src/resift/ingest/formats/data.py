"""JSON, YAML, TOML and XML: every value with the path of names that leads to it."""

from __future__ import annotations

import json
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from resift.errors import DataFormatError
from resift.external.records import read_text
from resift.ingest.formats.plain import plain_sections
from resift.ingest.formats.rows import Rows
from resift.ingest.sections import LONGEST_HEADING, SEPARATOR, Section
from resift.ingest.sources import Source

_MOST_VALUES = 500_000  # a file of a kilobyte can hold more by repeating its own parts
_DEEPEST = 50
_PIECE = 200_000  # characters per section


def read_json(source: Source) -> Iterator[Section]:
    """Yield a document per object of a list, as in JSONL; any other JSON as "name › name: value" lines."""
    yield from _parsed(source, json.loads, "JSON")


def read_yaml(source: Source) -> Iterator[Section]:
    """Yield the values with their paths; a file that is no YAML as plain text."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    def load(text: str) -> Any:
        try:
            values = list(yaml.load_all(text, Loader=loader))  # one of the two safe loaders
        except (yaml.YAMLError, TypeError, AttributeError) as exc:  # what its loaders raise for bad tags too
            raise ValueError from exc
        return values[0] if len(values) == 1 else values

    yield from _parsed(source, load, "YAML")


def read_toml(source: Source) -> Iterator[Section]:
    """Yield the values with their paths; a file that is no TOML as plain text."""
    yield from _parsed(source, tomllib.loads, "TOML")


def _parsed(source: Source, load: Callable[[str], Any], format: str) -> Iterator[Section]:
    """Yield what a file holds; one that is too large to parse or not valid as plain text, which it says."""
    if not source.parseable:
        yield from plain_sections(source, flag="very large: read as plain text")
        return
    decoded = source.text()
    try:
        value = load(decoded.text)
    except (ValueError, RecursionError):
        yield from plain_sections(source, flag=f"not valid {format}, read as plain text")
        return
    if (
        format == "JSON"
        and isinstance(value, list)
        and value
        and all(_is_row(row, source.text_keys) for row in value)
    ):
        rows = Rows(source.text_keys)
        yield from (rows.section(row, number) for number, row in enumerate(value, start=1))
    else:
        yield from _listed(value, decoded.flag)


def read_xml(source: Source) -> Iterator[Section]:
    """Yield the text of all elements and attributes in order, without holding the tree."""
    source.file.seek(0)
    lines = _XmlLines()
    parser = ET.XMLParser(target=lines)  # noqa: S314 - expat bounds what entities may become
    try:
        while block := source.file.read(65_536):
            parser.feed(block)
            if lines.held > _PIECE:
                yield Section(lines.taken(), position=source.file.tell())
        parser.close()
    except (ET.ParseError, ValueError, LookupError) as exc:
        if source.file.tell() > 65_536:
            raise DataFormatError(f"Not valid XML ({type(exc).__name__}).", file=source.name) from exc
        yield from plain_sections(source, flag="not valid XML, read as plain text")
        return
    if lines.held:
        yield Section(lines.taken(), position=source.size)


class _XmlLines:
    """What a parser tells, as lines: one for each stretch of text and each attribute."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._words: list[str] = []
        self.held = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._end_line()
        for name, value in attributes.items():
            self._line(f"{_local(name)}: {value}" if value.strip() else "")

    def data(self, text: str) -> None:
        self._words.append(text)
        self.held += len(text)

    def end(self, tag: str) -> None:
        self._end_line()

    def close(self) -> None:
        self._end_line()

    def taken(self) -> str:
        self._end_line()
        text = "\n".join(self._lines)
        self._lines, self.held = [], 0
        return text

    def _end_line(self) -> None:
        if self._words:
            self._line(" ".join("".join(self._words).split()))
            self._words = []

    def _line(self, text: str) -> None:
        if text:
            self._lines.append(text)
            self.held += len(text)


def _is_row(value: object, text_keys: tuple[str, ...] | None) -> bool:
    return isinstance(value, Mapping) and (text_keys is not None or not read_text(value).name_only)


def _listed(value: object, flag: str = "") -> Iterator[Section]:
    lines: list[str] = []
    held = 0
    values = _Values(value)
    for line in values:
        lines.append(line)
        held += len(line)
        if held > _PIECE:
            yield Section("\n".join(lines), flag=flag)
            lines, held, flag = [], 0, ""
    if lines:
        yield Section("\n".join(lines), flag=flag)
    if values.left_out:
        yield Section("", problem=values.left_out)


class _Values:
    """Goes through "name › name: value" of each value, without recursion; says what it left out."""

    def __init__(self, value: object) -> None:
        self._value = value
        self.left_out = ""

    def __iter__(self) -> Iterator[str]:
        waiting: list[tuple[tuple[str, ...], Any]] = [((), self._value)]
        for _ in range(_MOST_VALUES):
            if not waiting:
                return
            path, one = waiting.pop()
            if isinstance(one, (Mapping, list, tuple, set)):
                if len(path) < _DEEPEST:
                    waiting += _inside(path, one)
                elif one:
                    self.left_out = f"what lies below {_DEEPEST} names was not read"
            elif one is not None:
                text = str(one).strip() if not isinstance(one, bool) else str(one).lower()
                if text:
                    # Its end where it is long: the innermost names say most, and each value repeats them.
                    yield f"{SEPARATOR.join(path)[-LONGEST_HEADING:]}: {text}" if path else text
        if waiting:
            self.left_out = f"what comes after the first {_MOST_VALUES:,} values was not read"


def _inside(path: tuple[str, ...], one: Any) -> list[tuple[tuple[str, ...], Any]]:
    """Return what a mapping or a list holds, the last first."""
    if isinstance(one, Mapping):
        return [((*path, str(key)[:200]), inner) for key, inner in reversed(list(one.items()))]
    return [(path, inner) for inner in reversed(list(one))]


def _local(name: str) -> str:
    return name.rpartition("}")[2]
