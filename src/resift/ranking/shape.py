"""All shaping steps in their order: blend, boost, precede, guard, fold, mmr, recover, balance, cut. No I/O.

Each step is a function `step(hits, ..., sink=None) -> ShapeResult`. The result has `kept` in the new order,
`cut` with the reasons in the record, `notes` about relaxed rules, and `protected` ids that a later cut must
keep. `shape` runs all steps and skips those without a policy. Pass all reranked hits, including unscored ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from resift._internal.arrays import Vector
from resift.events import Sink
from resift.ranking.blend import Blend, Neighbors, ShapeApplied, ShapeResult, blend, nearest_neighbors, shape_result
from resift.ranking.boosts import Boost, Recency, boost
from resift.ranking.calibration import (
    Calibrator,
    Isotonic,
    Platt,
    Temperature,
    above,
    calibrate,
    calibrator_from,
    load_calibrator,
)
from resift.ranking.diversity import DIVERSITY, FAIRNESS, Quota, balance, fold, mmr
from resift.ranking.evidence import evidence as read_evidence
from resift.ranking.guard import Guard, Precedence, Recovery, guard, precede, recover, recoverable
from resift.types import Hit, Trace, cut_record, get_trace
from resift.validation import check_k, option

__all__ = [
    "DIVERSITY", "FAIRNESS", "Blend", "Boost", "Calibrator", "Guard", "Isotonic", "Platt", "Precedence",
    "Quota", "Recency", "Recovery", "ShapeApplied", "ShapePolicy", "ShapeResult", "Temperature", "above",
    "balance", "blend", "boost", "calibrate", "calibrator_from", "fold", "guard", "load_calibrator",
    "mmr", "nearest_neighbors", "precede", "recover", "shape",
]  # fmt: skip

__path__: list[str] = []  # needed to import old submodule paths such as resift.shape.blending

Shaped, nearest = ShapeResult, nearest_neighbors  # their names in Resift 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePolicy:
    """Options of each step; None skips the step.

    `fold` is the minimum similarity of texts that count as equal, and `mmr` is the trade-off between relevance
    and novelty.
    """

    blend: Blend | None = field(default_factory=Blend)
    recency: Recency | None = option("Prefer newer documents, up to a maximum weight.", default=None)
    boosts: tuple[Boost, ...] = option(
        "Prefer documents by a number, such as views, or by the value of a field.", default=()
    )
    precedence: Precedence | None = option("Order hits with nearly equal scores by source type.", default=None)
    guard: Guard | None = field(default_factory=Guard)
    fold: float | None = option(
        "Merge hits with texts at least this similar; 1 means equal.", default=None, gt=0, max=1
    )
    mmr: float | None = option("Relevance against novelty: 1 is relevance only.", default=None, min=0, max=1)
    quotas: tuple[Quota, ...] = option("Maximum and minimum number of hits per value of a metadata key.", default=())
    recovery: Recovery | None = option("Recover protected hits from below the cut.", default=None)


def shape(
    hits: Sequence[Hit],
    *,
    k: int,
    trace: Trace | None = None,
    policy: ShapePolicy | None = None,
    section: str | None = None,
    vectors: Mapping[str, Vector] | None = None,
    neighbors: Neighbors | None = None,
    near: Neighbors | None = None,
    now: datetime | None = None,
    sink: Sink | None = None,
) -> ShapeResult:
    """Run blend, boost, precedence, guard, fold, mmr, recovery and quotas, then cut to k.

    Protected hits get positions in the top k before quotas fill the others. `near` is the name of `neighbors`
    in Resift 0.2. `now` is the reference time for recency, by default the current time.
    """
    check_k(k)
    rules = policy or ShapePolicy()
    steps = [ShapeResult(tuple(hits))]
    strong: dict[str, str] = {}
    if rules.blend or rules.guard:
        # The evidence refers to the order of the reranker, before any step changes it.
        known = read_evidence(get_trace(hits) if trace is None else trace, [hit.id for hit in hits])
        if rules.guard:
            limits = rules.guard
            strong = known.strong_hits(firsts=limits.firsts, margin=limits.margin, opinions=limits.opinions)
        if rules.blend:
            near = neighbors or near
            steps.append(blend(hits, policy=rules.blend, known_evidence=known, neighbors=near, sink=sink))
    if rules.recency or rules.boosts:
        steps.append(boost(steps[-1].kept, recency=rules.recency, boosts=rules.boosts, now=now, sink=sink))
    # Precedence runs before the guard, because it must not undo the guard.
    if rules.precedence:
        steps.append(precede(steps[-1].kept, policy=rules.precedence, sink=sink))
    if strong and k:
        steps.append(guard(steps[-1].kept, n=k, policy=rules.guard, strong=strong, sink=sink))
    elif rules.guard and k and sink is not None:  # without strong hits, emit an event but add no record
        shape_result("guard", steps[-1].kept, steps[-1].kept, sink=sink)
    if rules.fold is not None:
        steps.append(fold(steps[-1].kept, threshold=rules.fold, sink=sink))
    if rules.mmr is not None:
        steps.append(mmr(steps[-1].kept, k=k, trade_off=rules.mmr, vectors=vectors, sink=sink))
    kept = steps[-1].kept
    # Computed after folding, because folded hits are represented by the hit that was kept.
    protected = {hit.id: "guarded" for hit in kept if hit.id in strong} if strong else {}
    if rules.recovery:
        protected |= recoverable(kept, k=k, policy=rules.recovery, section=section)
    if rules.quotas or not protected.keys() <= {hit.id for hit in kept[:k]}:
        steps.append(balance(kept, k=k, quotas=rules.quotas, protected=protected, sink=sink))
        kept = steps[-1].kept
    cut = [hit for step in steps for hit in step.cut]
    notes = tuple([note for step in steps for note in step.notes])
    records = (*[record for step in steps for record in step.records], *cut_record([hit.id for hit in kept], k))
    return ShapeResult(kept[:k], (*cut, *kept[k:]), notes, frozenset(protected), records)
