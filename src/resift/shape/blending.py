"""Blend: the reranker promotes, the first stage holds the rest in place (findings: docs/blending.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

from resift.errors import InputError, did_you_mean
from resift.events import Sink
from resift.shape.evidence import Evidence, evidence
from resift.shape.neighbours import Near, pulls
from resift.shape.shaped import Shaped, told
from resift.shape.standard import RANKS, first_stage_values, mean_and_spread, z_scores
from resift.types import Hit, Step, draft

STAGE = "blend"

USUAL_SPREAD = 2.8
"""Standard deviation of a cross-encoder's logits over 20 candidates, as measured (docs/blending.md)."""

ABOVE = 0.2
"""What a logit above the pool's mean counts beside the hit's share of the pool, as measured."""

Method = Literal["promote", "z-score", "rank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend:
    """How much the reranker counts, and in which form.

    score = (1 − weight) × first stage + weight × reranker. The first stage is the mean over stores of the
    hit's z-score. The reranker is, by method:

    promote   (spread × share + 0.2 × above) / 2.8: the hit's share of exp(logit / temperature) over the pool,
              counted as far as the pool's logits spread, and how far its logit is above their mean. It lifts
              what it is sure of, sinks nothing, and a flat pool of scores lifts nothing
    z-score   its z-score over the pool: lifts and sinks alike
    rank      1 / (2 + rank): its order alone

    `logits` names the providers whose scores are logits; the scores of others are stretched to the usual
    spread of logits first. Weight 1 is the reranker alone, weight 0 the first stage alone, each in exactly
    its own order.

    `neighbours` is the part of the way that a hit rises towards the mean score of the three candidates most
    like it, where that is higher and it is known which those are. Nothing sinks for its neighbours.
    """

    weight: float = 0.75
    method: Method = "promote"
    temperature: float = 1.0
    neighbours: float = 0.5
    logits: tuple[str, ...] = ("cross-encoder",)

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise InputError(f"Blend weight is {self.weight}; use 0 (first stage) to 1 (reranker).")
        if not self.temperature > 0:
            raise InputError(f"Blend temperature is {self.temperature}; it must be above 0.")
        if not 0 <= self.neighbours <= 1:
            raise InputError(f"Blend neighbours is {self.neighbours}; use 0 (not at all) to 1 (all the way).")
        if self.method not in _RERANKER:
            raise InputError(f"Unknown blend method {self.method!r}. {did_you_mean(self.method, _RERANKER)}")

    @property
    def asks_neighbours(self) -> bool:
        """Whether it makes a difference which candidates are alike."""
        return self.neighbours > 0 and 0 < self.weight < 1


def blend(
    hits: Sequence[Hit],
    *,
    policy: Blend | None = None,
    found: Sequence[Evidence] | None = None,
    near: Near | None = None,
    sink: Sink | None = None,
) -> Shaped:
    """Order hits by first-stage and reranker evidence, both read from their ledgers (H1).

    Hits that no reranker scored are not promoted: their first-stage evidence places them among the others.
    Without any reranker score, or without any first-stage evidence, the order stays. `found` is the
    evidence of the hits, for callers who read it already; `near` says which candidates are alike
    (`resift.shape.nearest`), and without it each hit stands for itself.
    """
    rules = policy or Blend()
    if found is None:
        found = [evidence(hit) for hit in hits]
    scored = [one.rerank.score for one in found if one.rerank is not None and one.rerank.score is not None]
    if not scored or not any(one.lists or one.fused for one in found):
        kept = _as_they_stand(hits, "nothing to blend")
    elif rules.weight == 1:
        kept = _by(hits, found, _reranker_place)
    elif rules.weight == 0:
        kept = _by(hits, found, _first_stage_place)
    else:
        kept = _blended(hits, found, rules, near or {})
    return told(STAGE, hits, Shaped(tuple(kept)), sink)


def _blended(hits: Sequence[Hit], found: Sequence[Evidence], rules: Blend, near: Near) -> list[Hit]:
    ids = [hit.id for hit in hits]
    weight, rest = rules.weight, 1 - rules.weight
    held = [rest * value for value in first_stage_values(found)]
    lifted = [weight * extra for extra in lifts([one.rerank for one in found], rules)]
    total = [value + extra for value, extra in zip(held, lifted, strict=True)]
    pulled: list[float] = []
    if near and rules.neighbours:
        pulled = [rules.neighbours * value for value in pulls(ids, total, near)]
        total = [value + extra for value, extra in zip(total, pulled, strict=True)]
    parts = (hits, found, held, lifted, pulled)
    # The old place comes last: what is equal in all else stays as it stood.
    rows = sorted(zip([-value for value in total], ids, range(len(hits)), strict=True))
    kept = []
    for rank, (negative, id, at) in enumerate(rows, start=1):
        hit = hits[at]
        kept.append(
            draft(id, hit.text, -negative, hit.source, hit.metadata, _Parts((parts, at, rank, -negative)))
        )
    return kept


class _Parts(tuple[Any, ...]):
    """A ledger writer: what the total of one hit is made of, written when somebody reads it."""

    __slots__ = ()

    def steps(self, _: Hit) -> tuple[Step, ...]:
        (hits, found, held, lifted, pulled), at, rank, total = self
        rerank = found[at].rerank
        steps = [Step(STAGE, "first stage", rank, held[at])]
        if rerank is not None:
            steps.append(Step(STAGE, rerank.source or "reranker", rank, lifted[at]))
        if pulled and pulled[at]:
            steps.append(Step(STAGE, "neighbours", rank, pulled[at]))
        steps.append(Step(STAGE, "", rank, total, "not reranked" if rerank is None else ""))
        return (*hits[at].ledger.steps, *steps)


def lifts(steps: Sequence[Step | None], policy: Blend) -> list[float]:
    """Return what the reranker's steps are worth before weighting; 0 for hits without one."""
    return _RERANKER[policy.method](steps, policy)


def _promote(steps: Sequence[Step | None], rules: Blend) -> list[float]:
    """Return each hit's share of exp(logit / temperature), times the spread, plus what is above the mean."""
    values = _logits(steps, rules)
    best = max(values)
    odds = [math.exp((value - best) / rules.temperature) for value in values]
    mean, spread = mean_and_spread(values)
    share = spread / math.fsum(odds)
    lifted = [share * odd + ABOVE * max(0.0, value - mean) for odd, value in zip(odds, values, strict=True)]
    return _spread_out(steps, [value / USUAL_SPREAD for value in lifted])


def _logits(steps: Sequence[Step | None], rules: Blend) -> list[float]:
    scores = _scores(steps)
    if {step.source for step in steps if step is not None} <= set(rules.logits):
        return scores
    return [USUAL_SPREAD * value for value in z_scores(scores)]


def _standard(steps: Sequence[Step | None], _: Blend) -> list[float]:
    """Return z-scores; hits without a score count as average, for nobody said otherwise."""
    return _spread_out(steps, z_scores(_scores(steps)))


def _ranks(steps: Sequence[Step | None], _: Blend) -> list[float]:
    scores = _scores(steps)
    place = {score: rank for rank, score in enumerate(sorted(set(scores), reverse=True), start=1)}
    return _spread_out(steps, [1 / (RANKS + place[score]) for score in scores])


def _scores(steps: Sequence[Step | None]) -> list[float]:
    return [step.score for step in steps if step is not None and step.score is not None]


def _spread_out(steps: Sequence[Step | None], values: Sequence[float]) -> list[float]:
    """Put the values of scored hits back to their places, 0 for the others."""
    known = iter(values)
    return [0.0 if step is None else next(known) for step in steps]


_RERANKER: Mapping[str, Callable[[Sequence[Step | None], Blend], list[float]]] = {
    "promote": _promote,
    "rank": _ranks,
    "z-score": _standard,
}


def _as_they_stand(hits: Sequence[Hit], note: str) -> list[Hit]:
    return [hit.step(STAGE, "", rank=rank, score=None, note=note) for rank, hit in enumerate(hits, start=1)]


def _by(
    hits: Sequence[Hit],
    found: Sequence[Evidence],
    place: Callable[[Evidence], tuple[float, float | None]],
) -> list[Hit]:
    """Order by one side alone, with that side's own scores; what it does not know stays behind, in order."""
    rows = []
    for at, (hit, one) in enumerate(zip(hits, found, strict=True)):
        key, score = place(one)
        rows.append((key, hit.id if math.isfinite(key) else "", at, hit, score))
    rows.sort(key=itemgetter(0, 1, 2))
    return [
        hit.step(STAGE, "", rank=rank, score=score)
        for rank, (_, _, _, hit, score) in enumerate(rows, start=1)
    ]


def _reranker_place(one: Evidence) -> tuple[float, float | None]:
    if one.rerank is None or one.rerank.score is None:
        return math.inf, None
    return -one.rerank.score, one.rerank.score


def _first_stage_place(one: Evidence) -> tuple[float, float | None]:
    if one.fused is not None:
        return one.fused.rank, one.fused.score
    best = min(one.lists.values(), key=lambda step: step.rank, default=None)
    return (math.inf, None) if best is None else (best.rank, best.score)
