"""Where sentences begin and end in a text of any script."""

from __future__ import annotations

import re
from itertools import pairwise

_END = re.compile(r"(?<=[.!?…])[\"'»”)\]]*\s+|(?<=[。!?])|\n\s*\n|\n(?=\s*(?:[-*•]|\d+[.)])\s)")


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of each sentence, in characters, without the white space around it."""
    cuts = [0, *(match.end() for match in _END.finditer(text)), len(text)]
    spans = (_trimmed(text, start, end) for start, end in pairwise(cuts))
    return [(start, end) for start, end in spans if start < end]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end
