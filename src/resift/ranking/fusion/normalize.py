"""Scores of one list put on a common scale. Each function takes and returns one value per hit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from resift.ranking.scaling import min_max, z_scores
from resift.validation import check_choice

Normalization = Literal["min-max", "z-score", "rank", "none"]


def rank_scale(scores: Sequence[float]) -> list[float]:
    """Map the i-th of n to 1 - (i-1)/n by its place in the list; the scores themselves do not count."""
    # The last of n gets 1/n and not 0, so that being listed counts for something.
    count = len(scores)
    return [1.0 - place / count for place in range(count)]


def unchanged(scores: Sequence[float]) -> list[float]:
    """Return the scores as they are."""
    return list(scores)


NORMALIZATIONS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "min-max": min_max,
    "none": unchanged,
    "rank": rank_scale,
    "z-score": z_scores,
}


def normalizer(name: Normalization) -> Callable[[Sequence[float]], list[float]]:
    """Return the normalisation of that name."""
    return NORMALIZATIONS[check_choice(name, NORMALIZATIONS, "normalisation")]
