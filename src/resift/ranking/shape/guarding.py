"""Do no harm: one reranker's opinion does not throw a strong first-stage hit out of the top n."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from resift.events import Sink
from resift.ranking.shape.evidence import Evidence, evidence
from resift.ranking.shape.shaped import Shaped, shaped
from resift.types import Hit, StageKind, Trace, trace_of
from resift.validation import DEFAULT_K, check_k, check_options, option

STAGE = "guard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What makes a first-stage hit strong: first in `firsts` lists, or first of the fused by `margin`.

    The margin is the lead over the second as a share of the whole range of fused scores. More than
    `opinions` rerankers that agree are not one reranker's opinion, and are followed.
    """

    firsts: int = option("Strong: first in this many lists.", default=2, min=1)
    margin: float = option("Strong: leads the fused list by this share of its range.", default=0.5, min=0)
    opinions: int = option("More rerankers than this that agree are followed.", default=1, min=1)

    def __post_init__(self) -> None:
        check_options(self)


def guard(
    hits: Sequence[Hit],
    *,
    n: int = DEFAULT_K,
    trace: Trace | None = None,
    policy: Guard | None = None,
    strong: Mapping[str, str] | None = None,
    sink: Sink | None = None,
) -> Shaped:
    """Move strong first-stage hits that fell below place n up to place n; the others move down by one.

    `strong` is what `strong_ids` found, for callers who asked already.
    """
    check_k(n, name="n", min=1)
    if strong is None:
        found = evidence(trace_of(hits) if trace is None else trace, [hit.id for hit in hits])
        strong = strong_ids(hits, found, policy)
    fallen = [hit for hit in hits[n:] if hit.id in strong] if strong else []
    lifted = {hit.id for hit in fallen}
    stay = [hit for hit in hits if hit.id not in lifted]
    # Strong hits that already stand in the top n are not what makes room.
    room = max(0, n - len(fallen))
    top = [hit for hit in stay[:n] if hit.id in strong]
    head = [hit for hit in stay[:n] if hit.id not in strong][: max(0, room - len(top))]
    leading = {hit.id for hit in (*top, *head)}
    order = [h for h in stay if h.id in leading] + fallen + [h for h in stay if h.id not in leading]
    return shaped(
        STAGE,
        hits,
        order if fallen else hits,
        kind=StageKind.GUARD,
        by_id={hit.id: f"guarded: {strong[hit.id]}, so it stays in the top {n}" for hit in fallen},
        protected=frozenset(strong),
        sink=sink,
    )


def strong_ids(hits: Sequence[Hit], found: Evidence, policy: Guard | None = None) -> dict[str, str]:
    """Return the ids of strong first-stage hits that too few rerankers judged, each with the reason."""
    rules = policy or Guard()
    leader = _wide_leader(found, rules.margin)
    leads = {id for id, lists in found.firsts.items() if lists >= rules.firsts}
    strong: dict[str, str] = {}
    for at, hit in enumerate(hits):
        if (hit.id in leads or at == leader) and found.judges(at) <= rules.opinions:
            strong[hit.id] = (
                f"first in {found.firsts[hit.id]} lists"
                if hit.id in leads
                else "first of the fused by a wide margin"
            )
    return strong


def _wide_leader(found: Evidence, margin: float) -> int | None:
    """Return the place of the hit that leads the fused scores by at least that share of their range."""
    scores = [(score, at) for at, score in enumerate(found.fused.scores) if score is not None]
    # With two scores the lead is the whole range: any margin would be wide.
    if len(scores) < 3:
        return None
    (best, leader), (second, _) = nlargest(2, scores)
    last = min(scores)[0]
    return leader if best > second and best - second >= margin * (best - last) else None
