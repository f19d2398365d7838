"""All shaping stages in their one order, as one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from resift.errors import InputError
from resift.events import Sink
from resift.shape.blending import Blend, blend
from resift.shape.diversity import mmr
from resift.shape.evidence import evidence
from resift.shape.folding import fold
from resift.shape.guarding import STAGE as GUARD
from resift.shape.guarding import Guard, guard, strong_ids
from resift.shape.neighbours import Near
from resift.shape.precedence import Precedence, precede
from resift.shape.quotas import STAGE as BALANCE
from resift.shape.quotas import Quota, arranged
from resift.shape.recovery import Recovery, recoverable
from resift.shape.shaped import Shaped, told
from resift.types import Hit, cut_to, placed


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePolicy:
    """Which stages run, and by which rules; None leaves a stage out.

    `fold` is the similarity from which on texts are one, `mmr` the trade-off of relevance and novelty.
    """

    blend: Blend | None = field(default_factory=Blend)
    precedence: Precedence | None = None
    guard: Guard | None = field(default_factory=Guard)
    fold: float | None = None
    mmr: float | None = None
    recovery: Recovery | None = None
    quotas: tuple[Quota, ...] = ()


def shape(
    hits: Sequence[Hit],
    *,
    k: int,
    policy: ShapePolicy | None = None,
    section: str | None = None,
    vectors: Mapping[str, Any] | None = None,
    near: Near | None = None,
    sink: Sink | None = None,
) -> Shaped:
    """Run blend, precedence, guard, fold, mmr, recovery and quotas, then cut to k.

    What recovery and the guard protect has its place among the k before quotas fill the others.
    """
    if k < 0:
        raise InputError(f"k is {k}; ask for k ≥ 0 hits.")
    rules = policy or ShapePolicy()
    kept: Sequence[Hit] = hits
    cut: tuple[Hit, ...] = ()
    # Ledgers are read once, before the stages make them longer.
    found = [evidence(hit) for hit in hits] if rules.blend or rules.guard else []
    strong = strong_ids(hits, found, rules.guard) if rules.guard else {}
    if rules.blend:
        kept = blend(kept, policy=rules.blend, found=found, near=near, sink=sink).kept
    if rules.precedence:
        kept = precede(kept, policy=rules.precedence, sink=sink).kept
    if strong and k:
        kept = guard(kept, n=k, policy=rules.guard, strong=strong, sink=sink).kept
    elif rules.guard and k:  # nothing to guard: told, but not worth a step in every ledger
        told(GUARD, kept, Shaped(tuple(kept)), sink)
    if rules.fold is not None:
        folded = fold(kept, threshold=rules.fold, sink=sink)
        kept, cut = folded.kept, folded.cut
    if rules.mmr is not None:
        kept = mmr(kept, k=k, trade_off=rules.mmr, vectors=vectors, sink=sink).kept
    spared = dict.fromkeys((hit.id for hit in kept if hit.id in strong), "guarded")
    if rules.recovery:
        spared |= recoverable(kept, k=k, policy=rules.recovery, section=section)
    if not rules.quotas and spared.keys() <= {hit.id for hit in kept[:k]}:
        final, left = cut_to(kept, k)
        return Shaped(final, (*cut, *left), (), frozenset(spared))
    order, notes, single = arranged(kept, k=k, quotas=rules.quotas, protected=spared)
    # Balance and cut in one: what is cut anyway need not be written down twice.
    final, left = cut_to(order, k)
    shaped = Shaped(placed(final, BALANCE, notes=single), (*cut, *left), notes, frozenset(spared))
    return told(BALANCE, kept, shaped, sink)
