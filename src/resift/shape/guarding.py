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
    hits: Sequence[Hit],
    *,
    n: int = 10,
    policy: Guard | None = None,
    strong: Mapping[str, str] | None = None,
    sink: Sink | None = None,
) -> Shaped:
    """Move strong first-stage hits that fell below place n up to place n; the others move down by one.

    `strong` is what `strong_ids` found, for callers who asked already.
    """
    if n < 1:
        raise InputError(f"n is {n}; guard at least the first place.")
    if strong is None:
        strong = strong_ids(hits, [evidence(hit) for hit in hits], policy)
    fallen = [hit for hit in hits[n:] if hit.id in strong] if strong else []
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


def strong_ids(hits: Sequence[Hit], found: Sequence[Evidence], policy: Guard | None = None) -> dict[str, str]:
    """Return the ids of strong first-stage hits that too few rerankers judged, each with the reason."""
    rules = policy or Guard()
    strong: dict[str, str] = {}
    leader = _wide_leader(found, rules.margin)
    for at, (hit, one) in enumerate(zip(hits, found, strict=True)):
        firsts = 0
        for step in one.lists.values():
            if step[2] == 1:
                firsts += 1
        if (firsts >= rules.firsts or at == leader) and len(one.judges) <= rules.opinions:
            strong[hit.id] = (
                f"first in {firsts} lists"
                if firsts >= rules.firsts
                else "first of the fused by a wide margin"
            )
    return strong


def _wide_leader(found: Sequence[Evidence], margin: float) -> int | None:
    """Return where the one stands that leads the fused scores by at least that share of their range."""
    scores = [
        (one.fused.score, at) for at, one in enumerate(found) if one.fused and one.fused.score is not None
    ]
    if len(scores) < 3:
        return None
    (second, _), (best, leader) = sorted(scores)[-2:]
    last = min(scores)[0]
    return leader if best > second and best - second >= margin * (best - last) else None
