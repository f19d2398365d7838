"""First-stage evidence on one scale: z-scores per store, averaged over stores."""

from __future__ import annotations

import math
from collections.abc import Sequence

from resift.shape.evidence import Evidence
from resift.types import Step

RANKS = 2
"""Damps the reciprocal of a rank, as 60 does in RRF."""

_ABSENT = -1.0  # a hit outside a list is at least this far below the list's average


def z_scores(values: Sequence[float]) -> list[float]:
    """Return the distances from the mean in standard deviations; equal values are all 0."""
    if not values:
        return []
    # Scaled first, so that squares of huge scores stay finite.
    size = max(map(abs, values)) or 1.0
    scaled = [value / size for value in values]
    mean = math.fsum(scaled) / len(scaled)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in scaled) / len(scaled))
    if deviation < 1e-12:  # rounding noise, not a difference
        return [0.0] * len(values)
    return [(value - mean) / deviation for value in scaled]


def first_stage_values(found: Sequence[Evidence]) -> list[float]:
    """Return one value per hit: the mean over stores of its z-score in that store's list.

    A list whose scores are all equal is read by its ranks. A hit that a store did not return counts as
    that list's last. Where ledgers hold no lists, the fused score stands in.
    """
    stores = sorted({store for one in found for store in one.lists})
    if not stores:
        return _column([one.fused for one in found])
    columns = [_column([one.lists.get(store) for one in found]) for store in stores]
    return [math.fsum(row) / len(columns) for row in zip(*columns, strict=True)]


def _column(steps: Sequence[Step | None]) -> list[float]:
    present = [step for step in steps if step is not None]
    scores = [step.score for step in present if step.score is not None]
    if len(scores) < len(present) or len(set(scores)) < 2:
        scores = [-math.log(max(1, step.rank)) for step in present]
    values = z_scores(scores)
    absent = min([_ABSENT, *values])
    known = iter(values)
    return [absent if step is None else next(known) for step in steps]
