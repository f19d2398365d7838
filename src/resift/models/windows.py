"""Long texts in windows: which token spans a model sees, and how their scores become one. Pure functions."""

from __future__ import annotations

import math
from collections import Counter
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
    # A small budget must still go forward.
    stride = max(1, budget - min(overlap, budget // 4))
    starts = [*range(0, tokens - budget, stride), tokens - budget]
    return [(start, start + budget) for start in starts]


def most_promising(
    windows: Sequence[tuple[int, int]], ids: Sequence[int], query: Collection[int]
) -> list[int]:
    """Return the places of the windows, those first that hold most of the query.

    A token of the query counts the more, the fewer windows of the text have it: what all of them have tells
    none from another. Of equal windows the earlier one comes first, for texts begin with what they are about.
    """
    wanted = set(query)
    held = [Counter(token for token in ids[start:end] if token in wanted) for start, end in windows]
    spread = Counter(token for tokens in held for token in tokens)

    def worth(at: int) -> float:
        # As in BM25: the second time says less than the first.
        return math.fsum(
            math.log(1 + len(windows) / spread[token]) * count / (count + 1.2)
            for token, count in held[at].items()
        )

    return sorted(range(len(windows)), key=lambda at: (-worth(at), at))


def combine(scores: Sequence[float], how: Aggregate) -> float:
    """Return one score for a text from the scores of its windows."""
    if how == "first":
        return scores[0]
    # One window that answers is enough: a long text is about many things.
    return max(scores) if how == "max" else math.fsum(scores) / len(scores)
