"""Texts as sets of words, for similarity without vectors."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")


def words(text: str) -> frozenset[str]:
    """Return the distinct words of a text, whatever their case."""
    return frozenset(_WORD.findall(text.casefold()))


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Return shared words over all words; two empty texts are not similar, they are unknown."""
    shared = len(left & right)
    return shared / (len(left) + len(right) - shared) if shared else 0.0
