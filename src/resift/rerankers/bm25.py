"""BM25 (Robertson et al., 1994) over a pool that lives for one query: only the query's words are scored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from resift._internal.forking import ForkSafeLock
from resift.errors import InputError
from resift.text.analysis import Analyzer
from resift.text.bm25 import POOL

CACHED_TEXTS = 2048
"""How many texts keep their word counts; the oldest go first."""


class _Counted(NamedTuple):
    terms: Mapping[str, int]
    length: int
    languages: frozenset[str]


class PoolBM25:
    """Scores texts by the share of the query's information that they cover, from 0 to 1.

    The score is BM25 divided by the most that any text could reach for this query, a text full of every
    word. It is 0 where no word matches, about 0.4 where each word of the query occurs once in a
    text of average length, and it never becomes 1 just because the rest of the pool is worse.
    """

    def __init__(self, *, k1: float = POOL.k1, b: float = POOL.b, language: str = "auto") -> None:
        if not (math.isfinite(k1) and k1 >= 0):
            raise InputError(f"k1 is {k1}; pass a number ≥ 0, such as 1.5.")
        if not 0 <= b <= 1:
            raise InputError(f"b is {b}; pass a number from 0 to 1, such as 0.75.")
        self.k1 = k1
        self.b = b
        self._analyzer = Analyzer(language)
        self._lock = ForkSafeLock()
        self._counted: dict[str, _Counted] = {}

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return one score per text; idf and average length come from the texts themselves."""
        counted = [self._counts(text) for text in texts]
        terms = self._terms(query, frozenset().union(*(each.languages for each in counted)))
        if not terms or not texts:
            return [0.0] * len(texts)
        # Texts without any word have an average of 0, which nothing may be divided by.
        average = sum(each.length for each in counted) / len(texts) or 1.0
        counts = [each.terms for each in counted]
        found = [_occurrences(spellings, counts) for spellings in terms]
        # idf of this pool alone: there is no collection to ask.
        weights = [_idf(len(texts), sum(map(bool, row))) for row in found]
        norms = [self.k1 * (1 - self.b + self.b * each.length / average) for each in counted]
        return _covered(found, weights, norms)

    def _terms(self, query: str, languages: frozenset[str]) -> list[tuple[str, ...]]:
        # "cell" and "cells" in one query are one word.
        return list(dict.fromkeys(self._analyzer.query_words(query, languages=languages)))

    def _counts(self, text: str) -> _Counted:
        known = self._counted.get(text)
        if known is None:
            found = self._analyzer.analyze(text)
            known = _Counted(Counter(found.terms), len(found.terms), found.languages)
            with self._lock:
                while len(self._counted) >= CACHED_TEXTS:
                    del self._counted[next(iter(self._counted))]
                self._counted[text] = known
        return known


def _occurrences(spellings: tuple[str, ...], counts: list[Mapping[str, int]]) -> list[int]:
    """Return how often each text holds the word in any of its spellings."""
    rows = [row for spelling in spellings if any(row := [each.get(spelling, 0) for each in counts])]
    if len(rows) == 1:
        return rows[0]
    return [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * len(counts)


def _idf(texts: int, holding: int) -> float:
    # A word that no text holds counts like one that a single text holds: its absence lowers all scores.
    holding = max(holding, 1)
    return math.log(1 + (texts - holding + 0.5) / (holding + 0.5))


def _covered(found: list[list[int]], weights: list[float], norms: list[float]) -> list[float]:
    parts: list[list[float]] = [[] for _ in norms]
    for weight, row in zip(weights, found, strict=True):
        for at, count in enumerate(row):
            if count:
                parts[at].append(weight * count / (count + norms[at]))
    most = math.fsum(weights)
    return [min(1.0, math.fsum(each) / most) for each in parts]
