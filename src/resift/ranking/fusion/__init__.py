"""Rank fusion: merge several ranked lists into one. The functions are named after their papers.

`rrf` is the default. `compare` shows how other engines would order the same lists. `METHODS` maps names to
functions. All functions take lists of `Hit`s and return a new list.
"""

from resift.ranking.fusion.dialects import DIALECTS
from resift.ranking.fusion.methods import METHODS, Comparison, compare, fuse, fusion_method
from resift.ranking.fusion.rank_based import borda, isr, rbc, rrf, weighted_rrf
from resift.ranking.fusion.score_based import (
    NORMALIZATIONS,
    comb_anz,
    comb_max,
    comb_min,
    comb_mnz,
    comb_sum,
    dbsf,
    linear,
    log_odds,
    relative_score,
)

__all__ = [
    "DIALECTS", "METHODS", "NORMALIZATIONS", "Comparison", "borda", "comb_anz", "comb_max", "comb_min",
    "comb_mnz", "comb_sum", "compare", "dbsf", "fuse", "fusion_method", "isr", "linear", "log_odds", "rbc",
    "relative_score", "rrf", "weighted_rrf",
]  # fmt: skip
