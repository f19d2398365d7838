"""First-stage evidence on one scale: z-scores per store, averaged over stores."""

from __future__ import annotations

import math

from resift.scaling import z_scores
from resift.shape.evidence import Column, Evidence

RANKS = 2
"""Damps the reciprocal of a rank, as 60 does in RRF."""


def first_stage_values(found: Evidence) -> list[float]:
    """Return one value per hit: the mean over stores of its z-score in the pool.

    A list whose scores are all equal is read by its ranks. A hit that a store did not return counts as
    that list's last, or as 0 where the list ended before the longest one did: then the store had nothing
    more that matches. Without any lists, the fused score stands in.
    """
    depths = {store: max((rank or 0 for rank in one.ranks), default=0) for store, one in found.lists.items()}
    lengths = {store: depth for store, depth in depths.items() if depth}
    if not lengths:
        return _values(found.fused, ended=False)
    longest = max(lengths.values())
    columns = [
        _values(found.lists[store], ended=length < longest) for store, length in sorted(lengths.items())
    ]
    if len(columns) == 2:  # the usual case, and the sum of two does not depend on their order
        return [(one + other) / 2 for one, other in zip(*columns, strict=True)]
    # fsum: plain addition would make the order of stores matter in the last digit.
    return [math.fsum(row) / len(columns) for row in zip(*columns, strict=True)]


def _values(column: Column, *, ended: bool) -> list[float]:
    ranks = [rank for rank in column.ranks if rank is not None]
    scores = [score for score in column.scores if score is not None]
    if len(scores) < len(ranks) or min(scores) == max(scores):
        last = -math.log(max(ranks) + 1)
        return z_scores([last if rank is None else -math.log(max(1, rank)) for rank in column.ranks])
    last = min(scores)
    if ended and last > 0:
        last = 0.0
    return z_scores([last if score is None else score for score in column.scores])
