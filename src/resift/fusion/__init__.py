"""Rank fusion: several ranked lists become one. Pure functions of their papers' names.

`rrf` is the default; `compare` shows how engines would disagree on the same lists; `METHODS` has every
function by its registry name. All take lists of `Hit`s and return a new list; nothing is mutated.
"""

from resift.fusion.compare import Comparison, compare
from resift.fusion.dialects import DIALECTS
from resift.fusion.entry import fuse
from resift.fusion.methods import METHODS, fusion_method
from resift.fusion.normalize import NORMALIZATIONS
from resift.fusion.rank_based import borda, isr, rbc, rrf, weighted_rrf
from resift.fusion.score_based import (
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
    "DIALECTS",
    "METHODS",
    "NORMALIZATIONS",
    "Comparison",
    "borda",
    "comb_anz",
    "comb_max",
    "comb_min",
    "comb_mnz",
    "comb_sum",
    "compare",
    "dbsf",
    "fuse",
    "fusion_method",
    "isr",
    "linear",
    "log_odds",
    "rbc",
    "relative_score",
    "rrf",
    "weighted_rrf",
]
