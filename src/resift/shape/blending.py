"""Blend: the reranker promotes, the first stage holds the rest in place (findings: docs/blending.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

from resift.errors import InputError, did_you_mean
from resift.events import Sink
from resift.shape.evidence import Evidence, evidence
from resift.shape.shaped import Shaped, told
from resift.shape.standard import RANKS, first_stage_values, mean_and_spread, z_scores
from resift.types import Hit, Step, moved

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
    """

    weight: float = 0.75
    method: Method = "promote"
    temperature: float = 1.0
    logits: tuple[str, ...] = ("cross-encoder",)

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise InputError(f"Blend weight is {self.weight}; use 0 (first stage) to 1 (reranker).")
        if not self.temperature > 0:
            raise InputError(f"Blend temperature is {self.temperature}; it must be above 0.")
        if self.method not in _RERANKER:
            raise InputError(f"Unknown blend method {self.method!r}. {did_you_mean(self.method, _RERANKER)}")


def blend(
    hits: Sequence[Hit],
    *,
    policy: Blend | None = None,
    found: Sequence[Evidence] | None = None,
    sink: Sink | None = None,
) -> Shaped:
    """Order hits by first-stage and reranker evidence, both read from their ledgers (H1).

    Hits that no reranker scored are not promoted: their first-stage evidence places them among the others.
    Without any reranker score, or without any first-stage evidence, the order stays. `found` is the
    evidence of the hits, for callers who read it already.
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
        kept = _blended(hits, found, rules)
    return told(STAGE, hits, Shaped(tuple(kept)), sink)


def _blended(hits: Sequence[Hit], found: Sequence[Evidence], rules: Blend) -> list[Hit]:
    first = first_stage_values(found)
    lift = lifts([one.rerank for one in found], rules)
    weight, rest = rules.weight, 1 - rules.weight
    rows = [
        (-(rest * value + weight * extra), hit.id, hit, one.rerank, rest * value, weight * extra)
        for hit, one, value, extra in zip(hits, found, first, lift, strict=True)
    ]
    rows.sort(key=itemgetter(0, 1))
    kept = []
    for rank, (negative, _, hit, rerank, held, lifted) in enumerate(rows, start=1):
        part = (STAGE, "first stage", rank, held, "")
        if rerank is None:
            kept.append(moved(hit, -negative, part, (STAGE, "", rank, -negative, "not reranked")))
        else:
            other = (STAGE, rerank.source or "reranker", rank, lifted, "")
            kept.append(moved(hit, -negative, part, other, (STAGE, "", rank, -negative, "")))
    return kept


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
