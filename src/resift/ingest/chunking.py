"""Build sections of files (text with headings), and split them into overlapping passages."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, NamedTuple, TypedDict

from resift.errors import InputError
from resift.types import Metadata

SEPARATOR = " › "
MAX_TITLE = 300
"""Maximum length of a title or heading that is put before every chunk. A longer heading is treated as text."""


@dataclass(frozen=True, slots=True)
class Section:
    """Text with its context. A section with an `id` is one document and is never split.

    `context` (headings or a title) is put before each of its chunks. `flag` describes something unusual, and
    `problem` describes content that could not be read. `position` is the number of bytes read so far.
    """

    text: str
    id: str | None = None
    context: str = ""
    metadata: Metadata = field(default_factory=dict)
    flag: str = ""
    problem: str = ""
    position: int = 0
    fields: tuple[str, ...] = ()


class SectionBuilder:
    """Collects lines under headings and returns them as sections, in order."""

    def __init__(self, title: str = "") -> None:
        self._title = title
        self._open: list[tuple[int, str]] = []
        self._heading: tuple[int, str] | None = None
        self._sections: list[Section] = []
        self.lines: list[str] = []

    def heading(self, level: int, title: str) -> None:
        """Start a section, and close the headings at this level and below."""
        self._close(next_level=level)
        self._open = [(depth, name) for depth, name in self._open if depth < level]
        self._open.append((level, title if len(title) <= MAX_TITLE else ""))
        self._heading = (level, title)
        if len(title) > MAX_TITLE:
            self.lines.append(title)

    def sections(self) -> list[Section]:
        """Return all sections. Call it once, at the end."""
        self._close(next_level=0)
        return self._sections

    def _close(self, *, next_level: int) -> None:
        text = "\n".join(self.lines).strip()
        self.lines = []
        context = SEPARATOR.join(name for _, name in self._open if name)
        metadata = {"title": self._title} if self._title else {}
        if context:
            metadata["heading"] = context
        if not text and self._heading is not None and next_level <= self._heading[0]:
            # Nothing follows the heading, not even a deeper heading, so the heading itself becomes the text.
            text = self._heading[1]
            context = SEPARATOR.join(name for _, name in self._open[:-1] if name)
        if text:
            self._sections.append(Section(text, context=context or self._title, metadata=metadata))
        self._heading = None


def clean_title(text: object) -> str:
    """Return a title on one line, truncated to the maximum length of a heading."""
    return " ".join(str(text or "").split())[:MAX_TITLE]


def flag_first(sections: Iterable[Section], flag: str) -> Iterator[Section]:
    """Yield the sections, with a flag on the first one."""
    for number, section in enumerate(sections):
        yield replace(section, flag=flag) if number == 0 and flag else section


RowIds = Literal["own", "path"]
"""Rows of JSONL and CSV files keep their "own" ids, or the "path" of the file is put before each id."""

_MAX_CONTEXT = 6 * MAX_TITLE  # characters before every passage; a longer context is treated as text
_MAX_REPEATED_METADATA, _MAX_REPEATED_FIELDS = 16_000, 100  # per passage of a long text; the first passage has all

_BORDER = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n\s*\n|\n(?=\s*[-*•#|>])")
# Scripts without spaces are counted by character, all others by word. Longer words count once per 40 letters.
_DENSE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_DENSE}]|[^\W{_DENSE}]{{1,40}}")


class ChunkSize(NamedTuple):
    """Size of a chunk and overlap of adjacent chunks, in words."""

    words: int = 200
    overlap: int = 40

    def validate(self) -> None:
        """Raise InputError for invalid sizes."""
        if not all(type(number) is int for number in self):
            raise InputError(f"chunk size is {self.words!r}, overlap {self.overlap!r}; pass integers.")
        if self.words < 1:
            raise InputError(f"chunk size is {self.words}; pass at least 1 word.")
        if not 0 <= self.overlap < self.words:
            raise InputError(f"overlap is {self.overlap}; it must be 0 to {self.words - 1}, below the chunk size.")


class IndexedPassage(TypedDict):
    """A document for the index. `own_id` is true if its id came from the file."""

    id: str
    text: str
    metadata: dict[str, object]
    own_id: bool


def split_section(
    section: Section, key: str, *, size: ChunkSize, row_ids: RowIds, copies: Counter[str], position: int = 0
) -> list[IndexedPassage]:
    """Return the passages of one section of the file `key`; `position` is the number of passages before it.

    `copies` counts identical passages of that file, so that they get different ids.
    """
    if not section.text.strip():
        return []
    own_id = section.id if section.id is None or row_ids == "own" else f"{key}#{section.id}"
    context, text = section.context, section.text
    if len(context) > _MAX_CONTEXT:
        context, text = "", f"{context}\n\n{text}"
    pieces = [text] if own_id is not None else chunks(text, size)
    repeated = _repeated_metadata(section.metadata) if len(pieces) > 1 else {}
    passages: list[IndexedPassage] = []
    for number, piece in enumerate(pieces, start=1):
        content = clean(f"{context}\n\n{piece}" if context else piece)
        id = clean(own_id) if own_id is not None else _chunk_id(key, content, copies)
        metadata = dict(section.metadata if number == 1 else repeated)
        if len(pieces) > 1:
            metadata["chunk"] = number
        metadata["path"] = key
        if own_id is None:
            metadata.setdefault("position", position + len(passages))
        passages.append({"id": id, "text": content, "metadata": metadata, "own_id": own_id is not None})
    return passages


def clean(text: str) -> str:
    """Replace NULs and unpaired surrogates, which databases and tokenizers reject."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def chunks(text: str, size: ChunkSize = ChunkSize()) -> list[str]:  # noqa: B008 - an immutable value
    """Return the chunks in order. Together they contain every word of the text."""
    size.validate()
    borders = list(_BORDER.finditer(text))
    starts = [0, *(border.end() for border in borders)]
    ends = [*(border.start() for border in borders), len(text)]
    units: list[_Unit] = []
    for start, end in zip(starts, ends, strict=True):
        words = [word.start() + start for word in _WORD.finditer(text[start:end])]
        # A sentence longer than a chunk is split between words.
        for number, (first, last) in enumerate(pairwise([start, *words[size.words :: size.words], end])):
            if text[first:last].strip():
                units.append(_Unit(first, last, min(size.words, len(words) - number * size.words)))
    passages: list[str] = []
    start = 0
    while start < len(units):
        total, end = units[start].words, start + 1
        while end < len(units) and total + units[end].words <= size.words:
            total += units[end].words
            end += 1
        passages.append(text[units[start].start : units[end - 1].end].strip())
        if end == len(units):
            break
        shared, next_start = 0, end
        while next_start - 1 > start and shared + units[next_start - 1].words <= size.overlap:
            next_start -= 1
            shared += units[next_start].words
        start = next_start
    return [passage for passage in passages if passage]


class _Unit(NamedTuple):
    """A sentence, or a part of a long sentence."""

    start: int
    end: int
    words: int


def _repeated_metadata(metadata: Metadata) -> dict[str, object]:
    """Return the metadata to repeat in every passage. Otherwise a 1 MB value could be stored 1,000 times."""
    repeated: dict[str, object] = {}
    remaining = _MAX_REPEATED_METADATA
    for key, value in metadata.items():
        size = len(key) + len(str(value))
        if size <= remaining and len(repeated) < _MAX_REPEATED_FIELDS:
            repeated[key] = value
            remaining -= size
    return repeated


def _chunk_id(key: str, text: str, copies: Counter[str]) -> str:
    """Name a chunk by file and content, so that an unchanged chunk keeps its id when it moves."""
    name = f"{key}#{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    copies[name] += 1
    return name if copies[name] == 1 else f"{name}-{copies[name]}"
