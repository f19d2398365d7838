"""Blend: the reranker promotes, the first stage holds the rest in place (findings: docs/blending.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from resift.events import Sink
from resift.ranking.adaptive_weights import (
    CODE_DENSITY,
    MEAN_WORD_LENGTH,
    Trust,
    reranker_weight,
    sinking_part,
)
from resift.ranking.scaling import mean_and_deviation, z_scores
from resift.ranking.shape.evidence import Evidence, Judged, evidence
from resift.ranking.shape.first_stage import RANKS, first_stage_values
from resift.ranking.shape.neighbours import Near, pulls
from resift.ranking.shape.shaped import Shaped, shaped
from resift.types import (
    Hit,
    ScoreScale,
    StageKind,
    StageRecord,
    Trace,
    is_english_only,
    trace_of,
    with_scores,
)
from resift.validation import check_options, option

STAGE = "blend"

USUAL_SPREAD = 2.8
"""Standard deviation of a cross-encoder's logits over 20 candidates, as measured (docs/blending.md)."""

ABOVE = 0.2
"""What a logit above the pool's mean counts beside the hit's share of the pool, as measured."""

_SUREST = 1e-6  # a probability of 0 or 1 has no odds; the surest logits of the models are about ±12

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

    Scores that are not logits by the scorer's own description (`ScorerInfo.score_scale`) are stretched to the
    usual spread of logits first. Weight 1 is the reranker alone, weight 0 the first stage alone, each in
    exactly its own order.

    Without a weight it follows from the words of the texts (`trust`): more where they are plain, less where
    they are a field's own, none where the texts are no prose.

    `neighbours` is the part of the way that a hit rises towards the mean score of the three candidates most
    like it, where that is higher and it is known which those are. Where the weight follows from the texts and
    their words are technical, a hit also sinks towards that mean, by a part of it (`trust.sinking`).
    """

    weight: float | None = option(
        "How much the reranker counts: 1 is it alone, 0 the first stage alone; by evidence unless given.",
        default=None,
        min=0,
        max=1,
    )
    method: Method = option("How scores are blended.", default="promote")
    temperature: float = option(
        "How evenly `promote` shares its lift: low lifts the surest alone.", default=1.0, gt=0
    )
    neighbours: float = option(
        "How far a hit rises to the mean of the three most like it, if higher; 0 asks none.",
        default=0.5,
        min=0,
        max=1,
    )
    trust: Trust = field(default_factory=Trust)

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def asks_neighbours(self) -> bool:
        """Whether it makes a difference which candidates are alike."""
        return self.neighbours > 0 and self.weight not in (0, 1)


def blend(
    hits: Sequence[Hit],
    *,
    trace: Trace | None = None,
    policy: Blend | None = None,
    found: Evidence | None = None,
    near: Near | None = None,
    sink: Sink | None = None,
) -> Shaped:
    """Order hits by first-stage and reranker evidence, both read from the trace by kind of stage.

    Of several rerankers each is read on its own scale, and the last one that judged a hit speaks for it.
    Hits that none judged are not promoted: their first-stage evidence places them among the others.
    Without any reranker score, or without any first-stage evidence, the order stays. A ranking brings its
    own trace. `found` is the evidence, for callers who read it already; `near` says which candidates are
    alike (`resift.ranking.shape.nearest`), and without it each hit stands for itself.
    """
    rules = policy or Blend()
    if found is None:
        found = evidence(trace_of(hits) if trace is None else trace, [hit.id for hit in hits])
    if (
        not any(score is not None for one in found.judged for score in one.scores)
        or not found.has_first_stage
    ):
        return shaped(STAGE, hits, hits, record=_record(hits, note="nothing to blend"), sink=sink)
    weight = _weight(found, rules)
    # One side alone keeps its own scores and ties, which a sum with 0 would not.
    if weight in (0, 1):
        kept, record = _one_side(hits, found, reranker=weight == 1)
    else:
        told = found.facts.get(MEAN_WORD_LENGTH) if rules.weight is None else None
        sinking = sinking_part(rules.trust, letters=told)
        kept, record = _blended(hits, found, rules, weight, near=near or {}, sinking=sinking)
    if rules.weight is None:
        record = _with_reason(record, found, weight)
    return shaped(STAGE, hits, kept, record=record, sink=sink)


def _blended(
    hits: Sequence[Hit], found: Evidence, rules: Blend, weight: float, *, near: Near, sinking: float
) -> tuple[list[Hit], StageRecord]:
    ids = [hit.id for hit in hits]
    rest = 1 - weight
    providers, lifted = lifts(found.judged, rules, size=len(hits))
    first = [rest * value for value in first_stage_values(found)]
    total = [value + weight * extra for value, extra in zip(first, lifted, strict=True)]
    pulled: list[float] = []
    if near and rules.neighbours:
        pulled = [rules.neighbours * value for value in pulls(ids, total, near, sinking=sinking)]
        total = [value + extra for value, extra in zip(total, pulled, strict=True)]
    # The old place comes last: hits that are equal in everything else keep their order.
    rows = sorted(zip([-value for value in total], ids, range(len(hits)), strict=True))
    scores = [-negative for negative, _, _ in rows]
    kept = with_scores([hits[at] for _, _, at in rows], scores)
    added: dict[str, dict[str, float]] = {"first stage": dict(zip(ids, first, strict=True))}
    not_reranked = []
    for id, provider, extra in zip(ids, providers, lifted, strict=True):
        if provider is None:
            not_reranked.append(id)
        else:
            added.setdefault(provider, {})[id] = weight * extra
    added["neighbours"] = {id: value for id, value in zip(ids, pulled, strict=False) if value}
    return kept, _record(
        kept,
        scores=tuple(scores),
        parts={name: column for name, column in added.items() if column},
        notes=dict.fromkeys(not_reranked, "not reranked"),
    )


def _weight(found: Evidence, rules: Blend) -> float:
    """Return the weight that is given, or the one that follows from the texts that were found."""
    if rules.weight is not None:
        return rules.weight
    facts = found.facts
    return reranker_weight(
        rules.trust,
        marks=facts.get(CODE_DENSITY, 0.0),
        letters=facts.get(MEAN_WORD_LENGTH),
        english_only=is_english_only(_last_scores(found).languages),
    )


def _last_scores(found: Evidence) -> Judged:
    """Return the scores of the last rerank stage that gave any: they decide."""
    return [one for one in found.judged if _known(one)][-1]


def _with_reason(record: StageRecord, found: Evidence, weight: float) -> StageRecord:
    """Return the record with the weights of both sides, and why."""
    last = _last_scores(found)
    letters = found.facts.get(MEAN_WORD_LENGTH)
    why = ""
    if weight and letters:
        why = f": {letters:.2g} letters per word"
    elif weight and letters == 0 and is_english_only(last.languages):
        why = ": no English sentences"
    return replace(
        record,
        weights={"first stage": 1 - weight, last.provider: weight},
        note=f"{last.provider} counted {weight:.2g}{why}",
    )


def _known(judged: Judged) -> list[float]:
    return [score for score in judged.scores if score is not None]


def _record(
    hits: Sequence[Hit],
    *,
    scores: tuple[float | None, ...] = (),
    parts: Mapping[str, Mapping[str, float]] | None = None,
    note: str = "",
    notes: Mapping[str, str] | None = None,
) -> StageRecord:
    return StageRecord(
        kind=StageKind.GUARD,
        name=STAGE,
        ids=tuple([hit.id for hit in hits]),
        scores=scores,
        parts=parts or {},
        note=note,
        notes=notes or {},
    )


def lifts(judged: Sequence[Judged], policy: Blend, *, size: int) -> tuple[list[str | None], list[float]]:
    """Return per hit who judged it last, and what that is worth before weighting; 0 where nobody did."""
    providers: list[str | None] = [None] * size
    lifted = [0.0] * size
    for one in judged:
        scores = _known(one)
        values = iter(_RERANKER[policy.method](scores, one.score_scale, policy) if scores else ())
        for at, score in enumerate(one.scores):
            if score is not None:
                providers[at], lifted[at] = one.provider, next(values)
    return providers, lifted


def _promote(scores: Sequence[float], scale: ScoreScale, rules: Blend) -> list[float]:
    """Return each hit's share of exp(logit / temperature), times the spread, plus what is above the mean."""
    values = logits_of(scores, scale)
    # Relative to the best, so that no exponent overflows; shares do not change by it.
    best = max(values)
    odds = [math.exp((value - best) / rules.temperature) for value in values]
    mean, spread = mean_and_deviation(values)
    share = spread / math.fsum(odds)
    lifted = [share * odd + ABOVE * max(0.0, value - mean) for odd, value in zip(odds, values, strict=True)]
    return [value / USUAL_SPREAD for value in lifted]


def logits_of(scores: Sequence[float], scale: ScoreScale) -> Sequence[float]:
    """Return a reranker's scores as logits: its own, log-odds of probabilities, or stretched to their spread.

    Log-odds that are closer together than logits usually are come from another scale, and are stretched too.
    """
    if scale == "logit":
        return scores
    # Log-odds of a probability are a logit. A declared range that the scores do not keep is not believed.
    if scale != "cosine" and min(scores) >= 0 and max(scores) <= 1:
        kept = [min(max(score, _SUREST), 1 - _SUREST) for score in scores]
        odds = [math.log(score / (1 - score)) for score in kept]
        if mean_and_deviation(odds)[1] >= USUAL_SPREAD:
            return odds
        return [USUAL_SPREAD * value for value in z_scores(odds)]
    return [USUAL_SPREAD * value for value in z_scores(scores)]


def _z_scores(scores: Sequence[float], _scale: ScoreScale, _: Blend) -> list[float]:
    """Return z-scores; hits without a score count as average, for nobody said otherwise."""
    return z_scores(scores)


def _ranks(scores: Sequence[float], _scale: ScoreScale, _: Blend) -> list[float]:
    place = {score: rank for rank, score in enumerate(sorted(set(scores), reverse=True), start=1)}
    return [1 / (RANKS + place[score]) for score in scores]


_RERANKER: Mapping[str, Callable[[Sequence[float], ScoreScale, Blend], list[float]]] = {
    "promote": _promote,
    "rank": _ranks,
    "z-score": _z_scores,
}


def _one_side(hits: Sequence[Hit], found: Evidence, *, reranker: bool) -> tuple[list[Hit], StageRecord]:
    """Order by one side alone, with that side's own scores; what it does not know stays behind, in order."""
    keys = _reranker_keys(found) if reranker else _first_stage_keys(found)
    rows = [
        (*key, hit.id if math.isfinite(key[0]) else "", at)
        for at, (hit, (key, _)) in enumerate(zip(hits, keys, strict=True))
    ]
    order = [row[-1] for row in sorted(rows)]
    scores = [keys[at][1] for at in order]
    kept = with_scores([hits[at] for at in order], scores)
    return kept, _record(kept, scores=tuple(scores))


Key = tuple[tuple[float, float], float | None]
"""What a hit is sorted by (lower is better, infinity is unknown), and the score it gets."""


def _reranker_keys(found: Evidence) -> list[Key]:
    # A later reranker looked at what an earlier one chose, so whatever it judged stands before the others.
    keys: list[Key] = [((math.inf, 0.0), None)] * len(found.fused.ranks)
    for stage, one in enumerate(found.judged):
        keys = [
            key if score is None else ((-float(stage), -score), score)
            for key, score in zip(keys, one.scores, strict=True)
        ]
    return keys


def _first_stage_keys(found: Evidence) -> list[Key]:
    keys: list[Key] = []
    for at, (rank, score) in enumerate(zip(*found.fused, strict=True)):
        places = [(one.ranks[at], one.scores[at]) for one in found.lists.values()]
        known = [(place, given) for place, given in places if place is not None]
        best = min(known, key=lambda one: one[0], default=None) if rank is None else (rank, score)
        keys.append(((math.inf, 0.0), None) if best is None else ((float(best[0]), 0.0), best[1]))
    return keys
