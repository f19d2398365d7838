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

from resift.gate.cliff import Cliff, Hint, find_cliff
from resift.gate.grading import Grade, Grading, grade
from resift.gate.profiles import MEMOSA, NEUTRAL, Profile, Relax, profile_named
from resift.gate.reporting import ApplyRate, apply_rates
from resift.gate.screening import Gated, VectorSearchToolResult, gate

__all__ = [
    "MEMOSA",
    "NEUTRAL",
    "ApplyRate",
    "Cliff",
    "Gated",
    "Grade",
    "Grading",
    "Hint",
    "Profile",
    "Relax",
    "VectorSearchToolResult",
    "apply_rates",
    "find_cliff",
    "gate",
    "grade",
    "profile_named",
]
