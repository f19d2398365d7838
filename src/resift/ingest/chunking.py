"""One text into overlapping chunks that begin and end at sentence or paragraph borders."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from resift.errors import InputError

_BORDER = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n\s*\n|\n(?=\s*[-*•#|>])")
# Scripts without spaces count by character, all others by word; what is longer than any word counts as many.
_DENSE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_DENSE}]|[^\W{_DENSE}]{{1,40}}")


class ChunkSize(NamedTuple):
    """How large chunks are, in words, and how many words neighbours share."""

    words: int = 200
    overlap: int = 40

    def checked(self) -> ChunkSize:
        """Return itself, or raise InputError for sizes that cannot work."""
        if not all(type(number) is int for number in self):
            raise InputError(f"chunk size is {self.words!r}, overlap {self.overlap!r}; pass whole numbers.")
        if self.words < 1:
            raise InputError(f"chunk size is {self.words}; pass at least 1 word.")
        if not 0 <= self.overlap < self.words:
            raise InputError(
                f"overlap is {self.overlap}; it must be from 0 to {self.words - 1}, below the chunk size."
            )
        return self


class _Unit(NamedTuple):
    start: int
    end: int
    words: int


def chunks(text: str, size: ChunkSize = ChunkSize()) -> list[str]:  # noqa: B008 - an immutable value
    """Return the chunks in order; together they hold every word of the text."""
    size.checked()
    units = [part for unit in _units(text) for part in _parts(text, unit, size.words)]
    found: list[str] = []
    at = 0
    while at < len(units):
        end = _end(units, at, size.words)
        found.append(text[units[at].start : units[end - 1].end].strip())
        if end == len(units):
            break
        at = _back(units, at, end, size.overlap)
    return [chunk for chunk in found if chunk]


def count_words(text: str) -> int:
    """Return how many words a text has, as chunk sizes count them."""
    return sum(1 for _ in _WORD.finditer(text))


def _units(text: str) -> list[_Unit]:
    starts = [0, *(border.end() for border in _BORDER.finditer(text))]
    ends = [*(border.start() for border in _BORDER.finditer(text)), len(text)]
    spans = zip(starts, ends, strict=True)
    return [
        _Unit(start, end, count_words(text[start:end])) for start, end in spans if text[start:end].strip()
    ]


def _parts(text: str, unit: _Unit, most: int) -> list[_Unit]:
    """Split a unit that is longer than a chunk between words."""
    if unit.words <= most:
        return [unit]
    begins = [word.start() + unit.start for word in _WORD.finditer(text[unit.start : unit.end])]
    cuts = [unit.start, *begins[most::most], unit.end]
    return [
        _Unit(start, end, min(most, unit.words - number * most))
        for number, (start, end) in enumerate(pairwise(cuts))
    ]


def _end(units: list[_Unit], at: int, most: int) -> int:
    total, end = units[at].words, at + 1
    while end < len(units) and total + units[end].words <= most:
        total += units[end].words
        end += 1
    return end


def _back(units: list[_Unit], at: int, end: int, overlap: int) -> int:
    """Return where the next chunk begins: at most `overlap` words before the end, and after `at`."""
    shared, start = 0, end
    while start - 1 > at and shared + units[start - 1].words <= overlap:
        start -= 1
        shared += units[start].words
    return start
