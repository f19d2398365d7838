"""Do no harm: one reranker's opinion does not throw a strong first-stage hit out of the top n."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from resift.errors import InputError
from resift.events import Sink
from resift.shape.evidence import first_stage, fused_scores
from resift.shape.shaped import Shaped, placed, told
from resift.types import Hit

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
    return told(STAGE, hits, Shaped(placed(order, STAGE, notes), protected=frozenset(strong)), sink)


def strong_ids(hits: Sequence[Hit], policy: Guard | None = None) -> dict[str, str]:
    """Return the ids of strong first-stage hits that too few rerankers judged, each with the reason."""
    rules = policy or Guard()
    strong: dict[str, str] = {}
    judged = [hit for hit in hits if _opinions(hit) <= rules.opinions]
    for hit in judged:
        firsts = sum(step.rank == 1 for step in first_stage(hit).values())
        if firsts >= rules.firsts:
            strong[hit.id] = f"first in {firsts} lists"
    fused = fused_scores(hits)
    ranked = sorted(fused, key=lambda name: (-fused[name], name))
    if len(ranked) > 2:
        best, second, last = (fused[ranked[at]] for at in (0, 1, -1))
        wide = best > last and (best - second) / (best - last) >= rules.margin
        if wide and ranked[0] in {hit.id for hit in judged}:
            strong.setdefault(ranked[0], "first of the fused by a wide margin")
    return strong


def _opinions(hit: Hit) -> int:
    return len({step.source for step in hit.ledger if step.stage == "rerank" and step.score is not None})
