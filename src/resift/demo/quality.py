"""nDCG and reciprocal rank of an order, as trec_eval computes them, without any other package."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def ndcg(ids: Sequence[str], grades: Mapping[str, int], *, k: int = 10) -> float:
    """Return nDCG@k with linear gains (Järvelin and Kekäläinen, 2002)."""
    ideal = _dcg(sorted(grades.values(), reverse=True)[:k])
    return _dcg([grades.get(id, 0) for id in ids[:k]]) / ideal if ideal else 0.0


def reciprocal_rank(ids: Sequence[str], grades: Mapping[str, int]) -> float:
    """Return 1 / rank of the first relevant hit, 0 if there is none."""
    return next((1 / rank for rank, id in enumerate(ids, start=1) if grades.get(id, 0) > 0), 0.0)


def _dcg(gains: Sequence[int]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))
