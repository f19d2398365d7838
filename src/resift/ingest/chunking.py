"""Split sections into passages: overlapping chunks that begin and end at sentence or paragraph borders."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypedDict

from resift.errors import InputError
from resift.ingest.sections import MAX_TITLE, Section
from resift.types import Metadata

RowIds = Literal["own", "path"]
"""Rows of JSONL and CSV keep their own ids, or have the file's path before them."""

_MAX_CONTEXT = 6 * MAX_TITLE
"""Characters that precede every passage: a path of headings. A longer context is read as text."""

_MAX_REPEATED_METADATA = 16_000
"""Characters of metadata that every passage of a long text repeats. The first passage has all metadata."""

_BORDER = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n\s*\n|\n(?=\s*[-*•#|>])")
# Scripts without spaces are counted by character, all others by word. 40 letters count as one word.
_DENSE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_DENSE}]|[^\W{_DENSE}]{{1,40}}")


class ChunkSize(NamedTuple):
    """Size of a chunk and overlap of neighboring chunks, in words."""

    words: int = 200
    overlap: int = 40

    def validate(self) -> None:
        """Raise InputError for sizes that cannot work."""
        if not all(type(number) is int for number in self):
            raise InputError(f"chunk size is {self.words!r}, overlap {self.overlap!r}; pass whole numbers.")
        if self.words < 1:
            raise InputError(f"chunk size is {self.words}; pass at least 1 word.")
        if not 0 <= self.overlap < self.words:
            raise InputError(
                f"overlap is {self.overlap}; it must be from 0 to {self.words - 1}, below the chunk size."
            )


class IndexedPassage(TypedDict):
    """A document for the index. `own_id` says whether its id came from the file."""

    id: str
    text: str
    metadata: dict[str, object]
    own_id: bool


def split_section(
    section: Section, key: str, *, size: ChunkSize, row_ids: RowIds, copies: Counter[str]
) -> list[IndexedPassage]:
    """Return the passages of one section of the file `key`.

    `copies` counts the equal passages of that file, which get different ids.
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
        metadata: dict[str, object] = {**(section.metadata if number == 1 else repeated)}
        if len(pieces) > 1:
            metadata["chunk"] = number
        metadata["path"] = key
        passages.append({"id": id, "text": content, "metadata": metadata, "own_id": own_id is not None})
    return passages


def clean(text: str) -> str:
    """Replace NULs and unpaired surrogates, which databases and tokenizers reject."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def chunks(text: str, size: ChunkSize = ChunkSize()) -> list[str]:  # noqa: B008 - an immutable value
    """Return the chunks in order. Together they contain every word of the text."""
    size.validate()
    units = [part for unit in _split_sentences(text) for part in _split_unit(text, unit, size.words)]
    found: list[str] = []
    start = 0
    while start < len(units):
        total, end = units[start].words, start + 1
        while end < len(units) and total + units[end].words <= size.words:
            total += units[end].words
            end += 1
        found.append(text[units[start].start : units[end - 1].end].strip())
        if end == len(units):
            break
        start = _next_start(units, start, end, size.overlap)
    return [chunk for chunk in found if chunk]


def count_words(text: str) -> int:
    """Return the number of words, counted as chunk sizes count them."""
    return sum(1 for _ in _WORD.finditer(text))


class _Unit(NamedTuple):
    """A sentence, or a part of a long one."""

    start: int
    end: int
    words: int


def _split_sentences(text: str) -> list[_Unit]:
    starts = [0, *(border.end() for border in _BORDER.finditer(text))]
    ends = [*(border.start() for border in _BORDER.finditer(text)), len(text)]
    spans = zip(starts, ends, strict=True)
    return [
        _Unit(start, end, count_words(text[start:end])) for start, end in spans if text[start:end].strip()
    ]


def _split_unit(text: str, unit: _Unit, max_words: int) -> list[_Unit]:
    """Split a unit that is longer than a chunk between words."""
    if unit.words <= max_words:
        return [unit]
    starts = [word.start() + unit.start for word in _WORD.finditer(text[unit.start : unit.end])]
    cuts = [unit.start, *starts[max_words::max_words], unit.end]
    return [
        _Unit(start, end, min(max_words, unit.words - number * max_words))
        for number, (start, end) in enumerate(pairwise(cuts))
    ]


def _next_start(units: Sequence[_Unit], start: int, end: int, overlap: int) -> int:
    """Return where the next chunk begins: at most `overlap` words before `end`, and after `start`."""
    shared, next_start = 0, end
    while next_start - 1 > start and shared + units[next_start - 1].words <= overlap:
        next_start -= 1
        shared += units[next_start].words
    return next_start


def _repeated_metadata(metadata: Metadata) -> dict[str, object]:
    """Return the metadata that every passage repeats: a value of a megabyte would be stored 1,000 times."""
    repeated: dict[str, object] = {}
    remaining = _MAX_REPEATED_METADATA
    for key, value in metadata.items():
        size = len(key) + len(str(value))
        if size <= remaining:
            repeated[key] = value
            remaining -= size
    return repeated


def _chunk_id(key: str, text: str, copies: Counter[str]) -> str:
    """Name a chunk by file and content, so that an unchanged chunk keeps its id when it moves."""
    name = f"{key}#{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    copies[name] += 1
    return name if copies[name] == 1 else f"{name}-{copies[name]}"
