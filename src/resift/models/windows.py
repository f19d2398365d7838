"""Long texts in windows: which token spans a model sees, and how their scores become one. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Literal

Aggregate = Literal["max", "mean", "first"]

OVERLAP = 64
"""Tokens that two neighbouring windows share, so that no sentence is only seen cut in half."""


def spans(tokens: int, budget: int, *, overlap: int = OVERLAP) -> list[tuple[int, int]]:
    """Return (start, end) of windows of at most `budget` tokens that cover all tokens, in order.

    The last window ends with the text and is as wide as the others: a short rest would lack context.
    """
    if tokens <= budget:
        return [(0, tokens)]
    stride = max(1, budget - min(overlap, budget // 4))
    starts = [*range(0, tokens - budget, stride), tokens - budget]
    return [(start, start + budget) for start in starts]


def most_promising(
    windows: Sequence[tuple[int, int]], ids: Sequence[int], query: Collection[int], *, limit: int
) -> list[tuple[int, int]]:
    """Return `limit` windows: the first, and those that share most tokens with the query, in order."""
    if len(windows) <= limit:
        return list(windows)
    wanted = set(query)
    rest = range(1, len(windows))
    shared = {at: len(wanted.intersection(ids[slice(*windows[at])])) for at in rest}
    best = sorted(rest, key=lambda at: (-shared[at], at))[: limit - 1]
    return [windows[at] for at in sorted([0, *best])]


def combine(scores: Sequence[float], how: Aggregate) -> float:
    """Return one score for a text from the scores of its windows."""
    if how == "first":
        return scores[0]
    return max(scores) if how == "max" else math.fsum(scores) / len(scores)
