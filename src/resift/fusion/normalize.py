"""Scores of one list put on a common scale. Each function takes and returns one value per hit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from resift.errors import InputError, did_you_mean

Normalization = Literal["min-max", "z-score", "rank", "none"]


def min_max(scores: Sequence[float]) -> list[float]:
    """Map to [0, 1]; equal scores are all 1.0, because each is the best of its list."""
    if not scores:
        return []
    low, high = min(scores), max(scores)
    if high == low:
        return [1.0] * len(scores)
    # Halved first: the difference of two huge scores would overflow.
    span = high / 2 - low / 2
    return [(score / 2 - low / 2) / span for score in scores]


def z_score(scores: Sequence[float]) -> list[float]:
    """Map to mean 0 and (population) deviation 1; equal scores are all 0.0."""
    mean, deviation = mean_and_deviation(scores, sample=False)
    if deviation == 0:
        return [0.0] * len(scores)
    return [(score - mean) / deviation for score in scores]


def rank_scale(scores: Sequence[float]) -> list[float]:
    """Map the i-th of n to 1 - (i-1)/n by its place in the list; the scores themselves do not count."""
    count = len(scores)
    return [1.0 - place / count for place in range(count)]


def unchanged(scores: Sequence[float]) -> list[float]:
    """Return the scores as they are."""
    return list(scores)


NORMALIZATIONS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "min-max": min_max,
    "none": unchanged,
    "rank": rank_scale,
    "z-score": z_score,
}


def normalizer(name: Normalization) -> Callable[[Sequence[float]], list[float]]:
    """Return the normalisation of that name."""
    if name not in NORMALIZATIONS:
        raise InputError(f"Unknown normalisation {name!r}. {did_you_mean(str(name), NORMALIZATIONS)}")
    return NORMALIZATIONS[name]


def mean_and_deviation(scores: Sequence[float], *, sample: bool) -> tuple[float, float]:
    """Return mean and standard deviation, exactly summed; one score deviates by 0."""
    count = len(scores)
    if count == 0:
        return 0.0, 0.0
    # Scaled by the largest, so that squares of huge scores stay finite.
    scale = max(abs(score) for score in scores) or 1.0
    scaled = [score / scale for score in scores]
    mean = math.fsum(scaled) / count
    freedom = count - 1 if sample else count
    if freedom == 0 or min(scores) == max(scores):
        return mean * scale, 0.0
    variance = math.fsum((score - mean) ** 2 for score in scaled) / freedom
    return mean * scale, math.sqrt(variance) * scale
