"""First-stage evidence on one scale: z-scores per store, averaged over stores."""

from __future__ import annotations

import math

from resift.ranking.scaling import list_z_scores
from resift.ranking.shape.evidence import Evidence

RANKS = 2
"""Damps the reciprocal of a rank, as 60 does in RRF."""


def first_stage_values(found: Evidence) -> list[float]:
    """Return one value per hit: the mean over stores of its z-score in the pool.

    A list whose scores are all equal is read by its ranks. A hit that a store did not return counts as
    that list's last, or as 0 where the list ended before the longest one did: then the store had nothing
    more that matches. Without any lists, the fused score stands in. Lists that were weighed when they were
    fused are not weighed again: their fused score is the value.
    """
    if found.weighed:
        return [score or 0.0 for score in found.fused.scores]
    depths = {store: max((rank or 0 for rank in one.ranks), default=0) for store, one in found.lists.items()}
    lengths = {store: depth for store, depth in depths.items() if depth}
    if not lengths:
        return list_z_scores(*found.fused, ended=False)
    longest = max(lengths.values())
    columns = [
        list_z_scores(*found.lists[store], ended=length < longest)
        for store, length in sorted(lengths.items())
    ]
    if len(columns) == 2:  # the usual case, and the sum of two does not depend on their order
        return [(one + other) / 2 for one, other in zip(*columns, strict=True)]
    # fsum: plain addition would make the order of stores matter in the last digit.
    return [math.fsum(row) / len(columns) for row in zip(*columns, strict=True)]
