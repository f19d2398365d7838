"""Do no harm: one reranker's opinion does not throw a strong first-stage hit out of the top n."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resift.errors import InputError
from resift.events import Sink
from resift.shape.evidence import Evidence, evidence
from resift.shape.shaped import Shaped, told
from resift.types import Hit, placed

STAGE = "guard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What makes a first-stage hit strong: first in `firsts` lists, or first of the fused by `margin`.

    The margin is the lead over the second as a share of the whole range of fused scores. More than
    `opinions` rerankers that agree are not one reranker's opinion, and are followed.
    """

    firsts: int = 2
    margin: float = 0.5
    opinions: int = 1

    def __post_init__(self) -> None:
        if self.firsts < 1 or self.opinions < 1 or self.margin < 0:
            raise InputError("Guard needs firsts ≥ 1, opinions ≥ 1 and margin ≥ 0.")


def guard(
    hits: Sequence[Hit], *, n: int = 10, policy: Guard | None = None, sink: Sink | None = None
) -> Shaped:
    """Move strong first-stage hits that fell below place n up to place n; the others move down by one."""
    if n < 1:
        raise InputError(f"n is {n}; guard at least the first place.")
    rules = policy or Guard()
    strong = strong_ids(hits, rules)
    fallen = [hit for hit in hits[n:] if hit.id in strong]
    if not fallen:
        return told(STAGE, hits, Shaped(placed(hits, STAGE), protected=frozenset(strong)), sink)
    lifted = {hit.id for hit in fallen}
    stay = [hit for hit in hits if hit.id not in lifted]
    # Strong hits that already stand in the top n are not what makes room.
    room = max(0, n - len(fallen))
    top = [hit for hit in stay[:n] if hit.id in strong]
    head = [hit for hit in stay[:n] if hit.id not in strong][: max(0, room - len(top))]
    leading = {hit.id for hit in (*top, *head)}
    order = [h for h in stay if h.id in leading] + fallen + [h for h in stay if h.id not in leading]
    notes = {hit.id: f"guarded: {strong[hit.id]}, so it stays in the top {n}" for hit in fallen}
    return told(STAGE, hits, Shaped(placed(order, STAGE, notes=notes), protected=frozenset(strong)), sink)


def strong_ids(hits: Sequence[Hit], policy: Guard | None = None) -> dict[str, str]:
    """Return the ids of strong first-stage hits that too few rerankers judged, each with the reason."""
    rules = policy or Guard()
    found = {hit.id: evidence(hit) for hit in hits}
    strong: dict[str, str] = {}
    for name, one in found.items():
        firsts = sum(step.rank == 1 for step in one.lists.values())
        if firsts >= rules.firsts:
            strong[name] = f"first in {firsts} lists"
    leader = _wide_leader(found, rules.margin)
    if leader is not None:
        strong.setdefault(leader, "first of the fused by a wide margin")
    return {hit.id: strong[hit.id] for hit in hits if hit.id in strong and _opinions(hit) <= rules.opinions}


def _wide_leader(found: Mapping[str, Evidence], margin: float) -> str | None:
    """Return who leads the fused scores by at least that share of their range."""
    scores = {
        name: one.fused.score for name, one in found.items() if one.fused and one.fused.score is not None
    }
    if len(scores) < 3:
        return None
    best, second, *_ = sorted(scores, key=lambda name: (-scores[name], name))
    last = min(scores.values())
    if scores[best] == last:
        return None
    return best if (scores[best] - scores[second]) / (scores[best] - last) >= margin else None


def _opinions(hit: Hit) -> int:
    return len({step.source for step in hit.ledger if step.stage == "rerank" and step.score is not None})
