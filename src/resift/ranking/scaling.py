"""Scores on a common scale: min-max, z-scores, mean and deviation. Plain functions on lists of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence


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


def z_scores(values: Sequence[float]) -> list[float]:
    """Return the distances from the mean in (population) standard deviations; equal values are all 0."""
    if not values:
        return []
    # Scaled first, so that squares of huge scores stay finite.
    low, high = min(values), max(values)
    size = max(-low, high) or 1.0
    scaled = [value / size for value in values]
    mean = math.fsum(scaled) / len(scaled)
    centered = [value - mean for value in scaled]
    deviation = math.sqrt(math.fsum([value * value for value in centered]) / len(centered))
    if deviation < 1e-12:  # rounding noise, not a difference
        return [0.0] * len(values)
    return [value / deviation for value in centered]


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and (population) standard deviation of at least one value."""
    low, high = min(values), max(values)
    size = max(-low, high) or 1.0  # as above: squares stay finite
    scaled = [value / size for value in values]
    mean = math.fsum(scaled) / len(scaled)
    deviation = math.sqrt(math.fsum([(value - mean) ** 2 for value in scaled]) / len(scaled))
    return size * mean, size * deviation


def list_z_scores(ranks: Sequence[int | None], scores: Sequence[float | None], *, ended: bool) -> list[float]:
    """Return the z-scores of one store's list over a pool. A None rank is a hit that is not in the list.

    Ranks replace scores that are all equal or partly unknown. A hit that is not in the list counts like its
    last one, or as 0 if the list `ended`, which means that the store had no further match.
    """
    present = len(ranks) - ranks.count(None)
    known = [score for score in scores if score is not None]
    if not present:
        return [0.0] * len(ranks)
    if len(known) < present or min(known) == max(known):
        last = -math.log(max([rank for rank in ranks if rank is not None]) + 1)
        return z_scores([last if rank is None else -math.log(max(1, rank)) for rank in ranks])
    last = min(known)
    if ended and last > 0:
        last = 0.0
    return z_scores([last if score is None else score for score in scores])


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Pearson's correlation of two columns; 0 for fewer than four values, or equal ones."""
    if len(first) < 4:
        return 0.0
    return math.fsum([a * b for a, b in zip(z_scores(first), z_scores(second), strict=True)]) / len(first)
