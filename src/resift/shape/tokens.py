"""Texts as sets of words, for similarity without vectors."""

from __future__ import annotations

from resift.text.tokenization import words as words_in_order


def words(text: str) -> frozenset[str]:
    """Return the distinct words of a text in any script, whatever their case and accents."""
    return frozenset(words_in_order(text))
