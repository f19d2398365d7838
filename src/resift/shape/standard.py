"""First-stage evidence on one scale: z-scores per store, averaged over stores."""

from __future__ import annotations

import math
from collections.abc import Sequence

from resift.shape.evidence import Evidence
from resift.types import Step

RANKS = 2
"""Damps the reciprocal of a rank, as 60 does in RRF."""


def z_scores(values: Sequence[float]) -> list[float]:
    """Return the distances from the mean in standard deviations; equal values are all 0."""
    if not values:
        return []
    # Scaled first, so that squares of huge scores stay finite.
    size = max(-min(values), *values) or 1.0
    scaled = [value / size for value in values]
    mean = math.fsum(scaled) / len(scaled)
    centred = [value - mean for value in scaled]
    deviation = math.sqrt(math.fsum([value * value for value in centred]) / len(centred))
    if deviation < 1e-12:  # rounding noise, not a difference
        return [0.0] * len(values)
    return [value / deviation for value in centred]


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation of at least one value."""
    size = max(-min(values), *values) or 1.0  # as above: squares stay finite
    scaled = [value / size for value in values]
    mean = math.fsum(scaled) / len(scaled)
    deviation = math.sqrt(math.fsum([(value - mean) ** 2 for value in scaled]) / len(scaled))
    return size * mean, size * deviation


def first_stage_values(found: Sequence[Evidence]) -> list[float]:
    """Return one value per hit: the mean over stores of its z-score in the pool.

    A list whose scores are all equal is read by its ranks. A hit that a store did not return counts as
    that list's last, or as 0 where the list ended before the longest one did: then the store had nothing
    more that matches. Where ledgers hold no lists, the fused score stands in.
    """
    lengths: dict[str, int] = {}
    for one in found:
        for store, step in one[0].items():
            if step[2] > lengths.get(store, 0):
                lengths[store] = step[2]
    if not lengths:
        return _column([one.fused for one in found], ended=False)
    longest = max(lengths.values())
    columns = [
        _column([one[0].get(store) for one in found], ended=length < longest)
        for store, length in sorted(lengths.items())
    ]
    if len(columns) == 2:  # the usual case, and the sum of two does not depend on their order
        return [(one + other) / 2 for one, other in zip(*columns, strict=True)]
    # fsum: plain addition would make the order of stores matter in the last digit.
    return [math.fsum(row) / len(columns) for row in zip(*columns, strict=True)]


def _column(steps: Sequence[Step | None], *, ended: bool) -> list[float]:
    # By place, not by name: this runs for every hit of every list.
    scores = [step[3] for step in steps if step is not None and step[3] is not None]
    present = len(steps) - steps.count(None)
    if len(scores) < present or min(scores) == max(scores):
        ranks = [step.rank for step in steps if step is not None]
        last = -math.log(max(ranks) + 1)
        return z_scores([last if step is None else -math.log(max(1, step.rank)) for step in steps])
    last = min(scores)
    if ended and last > 0:
        last = 0.0
    return z_scores([last if step is None or step[3] is None else step[3] for step in steps])
