"""Maximal marginal relevance: each next hit is relevant and unlike those already chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from resift._internal.arrays import Vector
from resift.errors import InputError
from resift.events import Sink
from resift.ranking.shape.shaped import Shaped, shaped
from resift.text import jaccard
from resift.text.tokenization import words
from resift.types import Hit
from resift.validation import check_k

STAGE = "mmr"


def mmr(
    hits: Sequence[Hit],
    *,
    k: int,
    trade_off: float = 0.7,
    vectors: Mapping[str, Vector] | None = None,
    sink: Sink | None = None,
) -> Shaped:
    """Choose k by trade_off × relevance − (1 − trade_off) × likeness (Carbonell and Goldstein, 1998).

    Relevance is the score on a 0–1 scale within the pool. Likeness is the cosine of the vectors given per
    id (never below 0), or the Jaccard similarity of words where a vector is missing. The rest follow in
    their old order; a trade_off of 1 changes nothing.
    """
    check_k(k)
    if not 0 <= trade_off <= 1:
        raise InputError(f"trade_off is {trade_off}; use 0 (novelty alone) to 1 (relevance alone).")
    alike = _likeness(hits, vectors or {})
    relevance = _relevance(hits)
    chosen = list(range(len(hits)))[:k] if trade_off == 1 else _choose(relevance, k, trade_off, alike)
    taken = set(chosen)
    order = [*chosen, *(at for at in range(len(hits)) if at not in taken)]
    return shaped(STAGE, hits, [hits[at] for at in order], sink=sink)


def _choose(
    relevance: Sequence[float], k: int, trade_off: float, alike: Callable[[int, int], float]
) -> list[int]:
    # Likeness only grows with every choice, so a value from an earlier round is an upper bound: most
    # candidates are never compared again (lazy greedy; Minoux, 1978).
    bound = [trade_off * value for value in relevance]
    likeness = [0.0] * len(relevance)
    seen = [0] * len(relevance)
    left = list(range(len(relevance)))
    chosen: list[int] = []
    while left and len(chosen) < k:
        left.sort(key=lambda at: -bound[at])  # stable, so equal values stay in the order given
        best, best_value = -1, -math.inf
        for at in left:
            if bound[at] < best_value:
                break
            likeness[at] = max([likeness[at], *(alike(at, other) for other in chosen[seen[at] :])])
            seen[at] = len(chosen)
            bound[at] = trade_off * relevance[at] - (1 - trade_off) * likeness[at]
            if bound[at] > best_value or (bound[at] == best_value and at < best):
                best, best_value = at, bound[at]
        chosen.append(best)
        left.remove(best)
    return chosen


def _relevance(hits: Sequence[Hit]) -> list[float]:
    """Return the scores on a scale of 0 to 1 within the pool; what nobody judged is at its low end."""
    known = [hit.score for hit in hits if hit.score is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    if high <= low:
        return [1.0] * len(hits)
    return [0.0 if hit.score is None else (hit.score - low) / (high - low) for hit in hits]


def _likeness(hits: Sequence[Hit], vectors: Mapping[str, Vector]) -> Callable[[int, int], float]:
    units = [_unit(vectors.get(hit.id)) for hit in hits]
    bags: dict[int, frozenset[str]] = {}

    def bag(at: int) -> frozenset[str]:
        if at not in bags:
            bags[at] = frozenset(words(hits[at].text))
        return bags[at]

    def alike(one: int, other: int) -> float:
        left, right = units[one], units[other]
        if left is None or right is None:
            return jaccard(bag(one), bag(other))
        # Opposite is no more novel than unrelated.
        return max(0.0, _dot(left, right))

    return alike


def _dot(left: Any, right: Any) -> float:
    if hasattr(left, "dot"):
        return float(left.dot(right))
    return math.fsum(a * b for a, b in zip(left, right, strict=True))


def _unit(vector: Any) -> Any:
    if vector is None:
        return None
    length = math.sqrt(_dot(vector, vector))
    if length == 0:
        return None
    return vector / length if hasattr(vector, "dot") else [value / length for value in vector]
