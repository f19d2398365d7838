"""Blend: the reranker promotes, the first stage keeps the rest in place (findings: docs/how-it-works.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from resift._internal.arrays import Array, np
from resift.events import Event, Sink, emit
from resift.ranking import order_model
from resift.ranking.evidence import Evidence, RerankScores, evidence, mean_and_deviation, z_scores
from resift.ranking.order_model import OrderModel, scorer_facts
from resift.types import Hit, ScoreScale, StageKind, StageRecord, Trace, get_trace, make_record, with_scores
from resift.types.trace import LazyParts
from resift.validation import accept_aliases, check_options, option

STAGE = "blend"

USUAL_SPREAD = 2.8
"""Standard deviation of a cross-encoder's logits over 20 candidates, as measured (docs/how-it-works.md)."""

MAX_SPREAD = 3 * USUAL_SPREAD
"""Scores that spread further are not the logits of a cross-encoder but another scale."""

ABOVE_MEAN_WEIGHT = 0.2
"""Weight of the distance of a logit above the mean, next to the softmax share of the hit, as measured."""

RANK_OFFSET = 2
"""Damps the reciprocal of a rank, as 60 does in RRF."""

NEIGHBORS = 3
"""How many of the nearest candidates count for a hit, as measured."""

KNOWN_NEIGHBORS = 5
"""How many are computed per hit, so that enough remain if some were dropped."""

_COSINE_STEPS = 100_000  # sums of float32 products agree this far on every machine
_MIN_PROBABILITY = 1e-6  # a probability of 0 or 1 has no odds; the largest logits of the models are about ±12

Method = Literal["promote", "z-score", "rank"]

Neighbors = Mapping[str, Sequence[tuple[str, float]]]
"""Per id the nearest other candidates with their cosines, the nearest first."""


@dataclass(frozen=True, slots=True)
class ShapeResult:
    """Hits in their new order, dropped hits, relaxed rules, ids a later cut must keep, and the records."""

    kept: tuple[Hit, ...]
    cut: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()
    protected: frozenset[str] = frozenset()
    records: tuple[StageRecord, ...] = ()

    @property
    def ids(self) -> list[str]:
        """The ids of the kept hits in order."""
        return [hit.id for hit in self.kept]


class ShapeApplied(Event, name="shape"):
    """One shaping step ran over one list of candidates."""

    stage: str
    candidates: int
    kept: int
    moved: int
    notes: tuple[str, ...] = ()


def shape_result(
    stage: str,
    before: Sequence[Hit],
    kept: Sequence[Hit],
    cut: Sequence[Hit] = (),
    *,
    kind: StageKind = StageKind.SHAPE,
    record: StageRecord | None = None,
    notes: tuple[str, ...] = (),
    hit_notes: Mapping[str, str] | None = None,
    protected: frozenset[str] = frozenset(),
    sink: Sink | None = None,
) -> ShapeResult:
    """Return the result of a shaping step with its record, and emit its event.

    `hit_notes` are notes by id. A step that changes scores passes its own record.
    """
    if sink is not None:
        moved = sum(old.id != new.id for old, new in zip(before, kept, strict=False))
        event = ShapeApplied(stage=stage, candidates=len(before), kept=len(kept), moved=moved, notes=notes)
        emit(sink, event)
    done = record or make_record(kind, stage, kept, cut, notes=hit_notes)
    return ShapeResult(tuple(kept), tuple(cut), notes, protected, (done,))


@accept_aliases
@dataclass(frozen=True, slots=True, kw_only=True)
class Blend:
    """Weight and method of blending reranker scores with the first stage.

    score = (1 − weight) × first stage + weight × reranker. The first stage is the mean over stores of the
    hit's z-score. The reranker part depends on the method:

    promote   (spread × share + 0.2 × above) / 2.8: the hit's share of exp(logit / temperature) over all
              candidates times the spread of the logits, and the distance of its logit above their mean.
              It lifts confident hits and demotes none; equal scores change nothing
    z-score   its z-score over the candidates: lifts and demotes alike
    rank      1 / (2 + rank): only its order counts

    Scores on another scale than logits (`ScorerInfo.score_scale`) are first stretched to the usual spread of
    logits. Weight 1 is exactly the order of the reranker, weight 0 exactly that of the first stage.

    Without a weight, the fitted model of the default order derives one from the candidates (`order_model`).

    `neighbors` is how far a hit moves up toward the mean score of its three nearest candidates, if that is
    higher. With the fitted weight a hit also moves down toward it, by a share of that.
    """

    weight: float | None = option(
        "Weight of the reranker: 1 uses it alone, 0 the first stage alone; fitted by default.",
        default=None,
        min=0,
        max=1,
    )
    method: Method = option("How scores are blended.", default="promote")
    temperature: float = option(
        "How evenly `promote` distributes its lift: a low value lifts only the most confident hit.", default=1.0, gt=0
    )
    neighbors: float = option(
        "How far a hit moves up toward the mean of its three nearest candidates; 0 turns it off.",
        default=0.5,
        min=0,
        max=1,
        aliases=["neighbours"],
    )
    reranker_shift: float = option("Added to the fitted weight; found by resift tune.", default=0.0, min=-1, max=1)

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def uses_neighbors(self) -> bool:
        """Whether the neighbors of the candidates change the result."""
        return self.neighbors > 0 and self.weight not in (0, 1)


def blend(
    hits: Sequence[Hit],
    *,
    trace: Trace | None = None,
    policy: Blend | None = None,
    known_evidence: Evidence | None = None,
    neighbors: Neighbors | None = None,
    near: Neighbors | None = None,
    model: OrderModel | None = None,
    sink: Sink | None = None,
) -> ShapeResult:
    """Order hits by their first-stage evidence and reranker scores, which the trace holds.

    Scores of several rerankers are each read on their own scale, and the last score of a hit counts.
    Unscored hits keep their first-stage value. Without reranker scores or first-stage evidence, the order
    stays. A ranking has its own trace. `neighbors` are those of `nearest_neighbors`;
    the name was `near` in 0.2. `model` replaces the fitted model of the default order.
    """
    rules = policy or Blend()
    ids = [hit.id for hit in hits]
    known = known_evidence or evidence(get_trace(hits) if trace is None else trace, ids)
    # The last rerank stage with a score decides about languages and the name in the note.
    last = next((s for s in reversed(known.rerank_scores) if any(v is not None for v in s.scores)), None)
    in_lists = any(known.fused.ranks) or any(any(column.ranks) for column in known.lists().values())
    if last is None or not in_lists:
        record = make_record(StageKind.GUARD, STAGE, hits, note="nothing to blend")
        return shape_result(STAGE, hits, hits, record=record, sink=sink)
    first_stage = known.first_stage_values()
    demotion, note, weights = 0.0, "", {}
    weight = rules.weight
    if weight is None:
        chosen = model or order_model.default_model()
        if rules.reranker_shift:
            chosen = chosen.shifted(reranker=rules.reranker_shift)
        pairs = [(score, value) for score, value in zip(last.scores, first_stage, strict=True) if score is not None]
        scores, values = zip(*pairs, strict=True)
        facts = {**known.fusion.evidence, **scorer_facts(to_logits(scores, last.score_scale), values)}
        weight, reason = chosen.reranker_weight(facts, last.languages)
        demotion = chosen.demotion(facts)
        weights = {"first stage": 1 - weight, last.provider: weight}
        note = f"{last.provider} weight {weight:.2g}{reason and f': {reason}'}"
    if weight in (0, 1):
        # One side alone keeps its own scores and ties, which a sum with 0 would not.
        kept = _one_side(hits, known, reranker=weight == 1)
        record = StageRecord(
            kind=StageKind.GUARD,
            name=STAGE,
            ids=tuple([hit.id for hit in kept]),
            scores=tuple([hit.score for hit in kept]),
            weights=weights,
            note=note,
        )
        return shape_result(STAGE, hits, kept, record=record, sink=sink)
    providers, boosts = reranker_boosts(known.rerank_scores, rules, size=len(hits))
    totals = [(1 - weight) * value + weight * boost for value, boost in zip(first_stage, boosts, strict=True)]
    moves: list[float] = []
    near = neighbors or near
    if near and rules.neighbors and known.uses_vectors():
        moves = [rules.neighbors * move for move in neighbor_boosts(ids, totals, near, demotion=demotion)]
        totals = [value + move for value, move in zip(totals, moves, strict=True)]
    # By total, then id, then position. Two sorts, because one of tuples takes three times as long.
    order = sorted(range(len(hits)), key=ids.__getitem__)
    order.sort(key=totals.__getitem__, reverse=True)

    def parts() -> dict[str, dict[str, float]]:
        fused = known.first_stage_parts() or {"first stage": dict(zip(ids, first_stage, strict=True))}
        columns = {name: {id: (1 - weight) * value for id, value in column.items()} for name, column in fused.items()}
        for name in dict.fromkeys(provider for provider in providers if provider is not None):
            columns[name] = {id: weight * boosts[i] for i, id in enumerate(ids) if providers[i] == name}
        if any(moves):
            columns["neighbors"] = {id: move for id, move in zip(ids, moves, strict=True) if move}
        return columns

    record = StageRecord(
        kind=StageKind.GUARD,
        name=STAGE,
        ids=tuple([ids[i] for i in order]),
        scores=tuple([totals[i] for i in order]),
        parts=LazyParts(parts),
        notes={id: "not reranked" for id, provider in zip(ids, providers, strict=True) if provider is None},
        weights=weights,
        note=note,
    )
    kept = with_scores([hits[i] for i in order], record.scores)
    return shape_result(STAGE, hits, kept, record=record, sink=sink)


def _one_side(hits: Sequence[Hit], known: Evidence, *, reranker: bool) -> list[Hit]:
    """Order by one side alone, with its own scores; hits that it does not know stay behind, in order."""
    size = len(hits)
    # The sort key of a hit (lower is better, infinity is unknown), and the score it gets.
    keys = [(math.inf, 0.0)] * size
    scores: list[float | None] = [None] * size
    if reranker:
        # A later reranker scored the best hits of an earlier one, so its hits come first.
        for i, stage in enumerate(known.rerank_scores):
            for j, score in enumerate(stage.scores):
                if score is not None:
                    keys[j], scores[j] = (-float(i), -score), score
    else:
        lists = known.lists().values() if None in known.fused.ranks else ()
        for j, (rank, score) in enumerate(zip(*known.fused, strict=True)):
            places = [(rank, score)] if rank is not None else [(c.ranks[j], c.scores[j]) for c in lists]
            ranked = [(place, value) for place, value in places if place is not None]
            if ranked:
                best_rank, scores[j] = min(ranked, key=lambda place: place[0])
                keys[j] = (float(best_rank), 0.0)
    rows = [
        (*key, hit.id if math.isfinite(key[0]) else "", j) for j, (hit, key) in enumerate(zip(hits, keys, strict=True))
    ]
    order = [row[-1] for row in sorted(rows)]
    return with_scores([hits[j] for j in order], [scores[j] for j in order])


def reranker_boosts(
    stages: Sequence[RerankScores], policy: Blend, *, size: int
) -> tuple[list[str | None], list[float]]:
    """Return per hit the provider that scored it last, and the boost before weighting; 0 if unscored."""
    providers: list[str | None] = [None] * size
    boosts = [0.0] * size
    for stage in stages:
        positions = [i for i, score in enumerate(stage.scores) if score is not None]
        if positions:
            scores = [score for score in stage.scores if score is not None]
            values = _BOOSTS[policy.method](scores, stage.score_scale, policy)
            for i, value in zip(positions, values, strict=True):
                providers[i], boosts[i] = stage.provider, value
    return providers, boosts


def _promote(scores: Sequence[float], scale: ScoreScale, rules: Blend) -> list[float]:
    """Return the share of exp(logit / temperature) times the spread, plus the distance above the mean."""
    logits = to_logits(scores, scale)
    # Relative to the best, so that no exponent overflows; the shares stay the same.
    best = max(logits)
    odds = [math.exp((value - best) / rules.temperature) for value in logits]
    mean, spread = mean_and_deviation(logits)
    share = spread / math.fsum(odds)
    boosts = [share * odd + ABOVE_MEAN_WEIGHT * max(0.0, value - mean) for odd, value in zip(odds, logits, strict=True)]
    return [value / USUAL_SPREAD for value in boosts]


def to_logits(scores: Sequence[float], scale: ScoreScale) -> Sequence[float]:
    """Return scores as logits: unchanged, as log-odds of probabilities, or stretched to the usual spread.

    Log-odds that are closer together than usual logits come from another scale and are stretched too. So do
    logits that spread more than three times as far, which are shrunk.
    """
    if scale == "logit" and mean_and_deviation(scores)[1] <= MAX_SPREAD:
        return scores
    # Scores outside the declared range are not probabilities.
    if scale not in ("cosine", "logit") and min(scores) >= 0 and max(scores) <= 1:
        inside = [min(max(score, _MIN_PROBABILITY), 1 - _MIN_PROBABILITY) for score in scores]
        odds = [math.log(score / (1 - score)) for score in inside]
        if mean_and_deviation(odds)[1] >= USUAL_SPREAD:
            return odds
        return [USUAL_SPREAD * value for value in z_scores(odds)]
    return [USUAL_SPREAD * value for value in z_scores(scores)]


def _rank_boosts(scores: Sequence[float], _scale: ScoreScale, _rules: Blend) -> list[float]:
    ranks = {score: rank for rank, score in enumerate(sorted(set(scores), reverse=True), start=1)}
    return [1 / (RANK_OFFSET + ranks[score]) for score in scores]


_BOOSTS: Mapping[str, Callable[[Sequence[float], ScoreScale, Blend], list[float]]] = {
    "promote": _promote,
    "rank": _rank_boosts,
    "z-score": lambda scores, _scale, _rules: z_scores(scores),
}


def nearest_neighbors(vectors: Mapping[str, Array]) -> dict[str, tuple[tuple[str, float], ...]]:
    """Return the nearest other ids of each id by cosine, ties by id, without cosines of 0 or below."""
    ids = sorted(vectors)
    if len(ids) < 2:
        return {}
    rows: Array = np.asarray([vectors[id] for id in ids], dtype=np.float32)
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    rows = rows / np.where(lengths > 0, lengths, 1)
    # Row by row: such small products stay in this thread, and waiting for others may take ten times as long.
    cosines = np.stack([rows @ row for row in rows])
    # Integers with the position in their last digits: one sort, by cosine and then by id.
    size, count = len(ids), min(KNOWN_NEIGHBORS, len(ids) - 1)
    keys = np.arange(size) - size * np.rint(cosines * _COSINE_STEPS).astype(np.int64)
    np.fill_diagonal(keys, np.iinfo(np.int64).max)
    best = np.sort(np.partition(keys, count, axis=1)[:, :count], axis=1)
    positions = best % size
    values = (positions - best) // size / _COSINE_STEPS
    return {
        id: tuple((ids[i], value) for i, value in zip(others, near, strict=True) if value > 0)
        for id, others, near in zip(ids, positions.tolist(), values.tolist(), strict=True)
    }


def neighbor_boosts(
    ids: Sequence[str], values: Sequence[float], neighbors: Neighbors, *, count: int = NEIGHBORS, demotion: float = 0.0
) -> list[float]:
    """Return how far each hit's value is below the mean of its nearest candidates, weighted by cosine.

    For a hit above that mean it is `demotion` times the distance, and negative. It is 0 for hits without
    known neighbors among the candidates.
    """
    by_id = dict(zip(ids, values, strict=True))
    boosts: list[float] = []
    for id, own in zip(ids, values, strict=True):
        total = weights = 0.0
        left = count
        for other, cosine in neighbors.get(id, ()):
            value = by_id.get(other)
            if value is not None and cosine > 0:
                total += cosine * (value - own)
                weights += cosine
                left -= 1
                if not left:
                    break
        factor = 1.0 if total > 0 else demotion
        boosts.append(factor * (total / weights) if factor and weights else 0.0)
    return boosts
