"""Gate: which candidates go to the reranker. Pure functions on hits; every policy is data; no I/O.

gate(hits, *, trace=None, profile=NEUTRAL, section=None, rerank_top_n=None, top_k=None,
     breaker_closed=None, sink=None)
    -> Gated: grade the retrieval, relax floor and top-k (C, D, F) or tighten at a cliff (A, B)
    `Gated.kept` and `Gated.cut` are tuples of hits, each in the order given; `Gated.result` is the event.
grade(scores, *, floor, wanted, policy=Grading()) -> Grade           A–F from coverage, spread and top score
find_cliff(scores, *, floor, rerank_top_n, policy=Cliff()) -> Hint   the tighten hint; never cached
profile_named(name) -> Profile                                       "memosa" (floors of cosines), "neutral"
apply_rates(events, *, band=(0.02, 0.40)) -> list[ApplyRate]         how often tightening applied, per section
"""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.ranking.gate.cliff import Cliff as Cliff
    from resift.ranking.gate.cliff import Hint as Hint
    from resift.ranking.gate.cliff import find_cliff as find_cliff
    from resift.ranking.gate.grading import Grade as Grade
    from resift.ranking.gate.grading import Grading as Grading
    from resift.ranking.gate.grading import grade as grade
    from resift.ranking.gate.profiles import MEMOSA as MEMOSA
    from resift.ranking.gate.profiles import NEUTRAL as NEUTRAL
    from resift.ranking.gate.profiles import Profile as Profile
    from resift.ranking.gate.profiles import Relax as Relax
    from resift.ranking.gate.profiles import profile_named as profile_named
    from resift.ranking.gate.reporting import ApplyRate as ApplyRate
    from resift.ranking.gate.reporting import apply_rates as apply_rates
    from resift.ranking.gate.screening import Gated as Gated
    from resift.ranking.gate.screening import VectorSearchToolResult as VectorSearchToolResult
    from resift.ranking.gate.screening import gate as gate
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        cliff: Cliff Hint find_cliff
        grading: Grade Grading grade
        profiles: MEMOSA NEUTRAL Profile Relax profile_named
        reporting: ApplyRate apply_rates
        screening: Gated VectorSearchToolResult gate
        """,
    )
