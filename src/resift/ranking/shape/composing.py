"""All shaping stages in their one order, as one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from resift._internal.arrays import Vector
from resift.events import Sink
from resift.ranking.shape.blending import Blend, blend
from resift.ranking.shape.diversity import mmr
from resift.ranking.shape.evidence import evidence
from resift.ranking.shape.folding import fold
from resift.ranking.shape.guarding import STAGE as GUARD
from resift.ranking.shape.guarding import Guard, guard, strong_ids
from resift.ranking.shape.neighbours import Near
from resift.ranking.shape.precedence import Precedence, precede
from resift.ranking.shape.quotas import Quota, balance
from resift.ranking.shape.recovery import Recovery, recoverable
from resift.ranking.shape.shaped import Shaped, shaped
from resift.types import Hit, StageRecord, Trace, cut_record, trace_of
from resift.validation import check_k, option


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePolicy:
    """Which stages run, and by which rules; None leaves a stage out.

    `fold` is the similarity from which on texts are one, `mmr` the trade-off of relevance and novelty.
    """

    blend: Blend | None = field(default_factory=Blend)
    precedence: Precedence | None = option("Near-equal scores follow an order of source types.", default=None)
    guard: Guard | None = field(default_factory=Guard)
    fold: float | None = option(
        "Texts this similar share one place; 1 means equal.", default=None, gt=0, max=1
    )
    mmr: float | None = option("Relevance against novelty: 1 is relevance alone.", default=None, min=0, max=1)
    quotas: tuple[Quota, ...] = option(
        "How many of the k places one value of a metadata key may and must have.", default=()
    )
    recovery: Recovery | None = option("Protected hits that the cut would remove come back.", default=None)


def shape(
    hits: Sequence[Hit],
    *,
    k: int,
    trace: Trace | None = None,
    policy: ShapePolicy | None = None,
    section: str | None = None,
    vectors: Mapping[str, Vector] | None = None,
    near: Near | None = None,
    sink: Sink | None = None,
) -> Shaped:
    """Run blend, precedence, guard, fold, mmr, recovery and quotas, then cut to k.

    What recovery and the guard protect has its place among the k before quotas fill the others.
    """
    check_k(k)
    rules = policy or ShapePolicy()
    done = _Run(hits)
    strong: dict[str, str] = {}
    if rules.blend or rules.guard:
        # Evidence is about the hits as they came in, whatever the stages below do to their order.
        found = evidence(trace_of(hits) if trace is None else trace, [hit.id for hit in hits])
        strong = strong_ids(hits, found, rules.guard) if rules.guard else {}
        if rules.blend:
            done.add(blend(hits, policy=rules.blend, found=found, near=near, sink=sink))
    # Before the guard: a preference among equals must not undo what it protects.
    if rules.precedence:
        done.add(precede(done.kept, policy=rules.precedence, sink=sink))
    if strong and k:
        done.add(guard(done.kept, n=k, policy=rules.guard, strong=strong, sink=sink))
    elif rules.guard and k:  # nothing to guard: an event, but not worth a record
        shaped(GUARD, done.kept, done.kept, sink=sink)
    if rules.fold is not None:
        done.add(fold(done.kept, threshold=rules.fold, sink=sink))
    if rules.mmr is not None:
        done.add(mmr(done.kept, k=k, trade_off=rules.mmr, vectors=vectors, sink=sink))
    # After folding: what was folded away is kept in the one that stands for it.
    spared = dict.fromkeys((hit.id for hit in done.kept if hit.id in strong), "guarded")
    if rules.recovery:
        spared |= recoverable(done.kept, k=k, policy=rules.recovery, section=section)
    if rules.quotas or not spared.keys() <= {hit.id for hit in done.kept[:k]}:
        done.add(balance(done.kept, k=k, quotas=rules.quotas, protected=spared, sink=sink))
    return done.cut_to(k, protected=frozenset(spared))


class _Run:
    """The hits on their way through the stages, with what each stage left out and wrote down."""

    def __init__(self, hits: Sequence[Hit]) -> None:
        self.kept = tuple(hits)
        self.cut: tuple[Hit, ...] = ()
        self.notes: tuple[str, ...] = ()
        self.records: tuple[StageRecord, ...] = ()

    def add(self, one: Shaped) -> None:
        self.kept = one.kept
        self.cut += one.cut
        self.notes += one.notes
        self.records += one.records

    def cut_to(self, k: int, *, protected: frozenset[str]) -> Shaped:
        records = self.records + cut_record([hit.id for hit in self.kept], k)
        return Shaped(self.kept[:k], self.cut + self.kept[k:], self.notes, protected, records)
