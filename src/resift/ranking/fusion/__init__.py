"""Rank fusion: several ranked lists become one. Pure functions of their papers' names.

`rrf` is the default; `compare` shows how engines would disagree on the same lists; `METHODS` has every
function by its registry name. All take lists of `Hit`s and return a new list; nothing is mutated.
"""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.ranking.fusion.comparison import Comparison as Comparison
    from resift.ranking.fusion.comparison import compare as compare
    from resift.ranking.fusion.dialects import DIALECTS as DIALECTS
    from resift.ranking.fusion.entry import fuse as fuse
    from resift.ranking.fusion.methods import METHODS as METHODS
    from resift.ranking.fusion.methods import fusion_method as fusion_method
    from resift.ranking.fusion.normalize import NORMALIZATIONS as NORMALIZATIONS
    from resift.ranking.fusion.rank_based import borda as borda
    from resift.ranking.fusion.rank_based import isr as isr
    from resift.ranking.fusion.rank_based import rbc as rbc
    from resift.ranking.fusion.rank_based import rrf as rrf
    from resift.ranking.fusion.rank_based import weighted_rrf as weighted_rrf
    from resift.ranking.fusion.score_based import comb_anz as comb_anz
    from resift.ranking.fusion.score_based import comb_max as comb_max
    from resift.ranking.fusion.score_based import comb_min as comb_min
    from resift.ranking.fusion.score_based import comb_mnz as comb_mnz
    from resift.ranking.fusion.score_based import comb_sum as comb_sum
    from resift.ranking.fusion.score_based import dbsf as dbsf
    from resift.ranking.fusion.score_based import linear as linear
    from resift.ranking.fusion.score_based import log_odds as log_odds
    from resift.ranking.fusion.score_based import relative_score as relative_score
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        comparison: Comparison compare
        dialects: DIALECTS
        entry: fuse
        methods: METHODS fusion_method
        normalize: NORMALIZATIONS
        rank_based: borda isr rbc rrf weighted_rrf
        score_based: comb_anz comb_max comb_min comb_mnz comb_sum dbsf linear log_odds relative_score
        """,
    )
