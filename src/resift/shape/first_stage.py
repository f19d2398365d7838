"""First-stage evidence on one scale: z-scores per store, averaged over stores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from resift.scaling import z_scores
from resift.shape.evidence import Evidence, Place

RANKS = 2
"""Damps the reciprocal of a rank, as 60 does in RRF."""


def first_stage_values(found: Evidence) -> list[float]:
    """Return one value per hit: the mean over stores of its z-score in the pool.

    A list whose scores are all equal is read by its ranks. A hit that a store did not return counts as
    that list's last, or as 0 where the list ended before the longest one did: then the store had nothing
    more that matches. Without any lists, the fused score stands in.
    """
    lengths = _lengths(found.lists)
    if not lengths:
        return _column(found.fused, ended=False)
    longest = max(lengths.values())
    columns = [
        _column(found.lists[store], ended=length < longest) for store, length in sorted(lengths.items())
    ]
    if len(columns) == 2:  # the usual case, and the sum of two does not depend on their order
        return [(one + other) / 2 for one, other in zip(*columns, strict=True)]
    # fsum: plain addition would make the order of stores matter in the last digit.
    return [math.fsum(row) / len(columns) for row in zip(*columns, strict=True)]


def _lengths(lists: Mapping[str, Sequence[Place | None]]) -> dict[str, int]:
    """Return store -> how deep the pool reaches into its list, for stores that have any of the hits."""
    depths = {store: max((one[0] for one in column if one), default=0) for store, column in lists.items()}
    return {store: depth for store, depth in depths.items() if depth}


def _column(places: Sequence[Place | None], *, ended: bool) -> list[float]:
    present = [place for place in places if place is not None]
    scores = [place[1] for place in present if place[1] is not None]
    if len(scores) < len(present) or min(scores) == max(scores):
        last = -math.log(max(place[0] for place in present) + 1)
        return z_scores([last if place is None else -math.log(max(1, place[0])) for place in places])
    last = min(scores)
    if ended and last > 0:
        last = 0.0
    return z_scores([last if place is None or place[1] is None else place[1] for place in places])
