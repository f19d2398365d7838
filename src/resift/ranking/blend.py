"""Blend: the reranker promotes hits, and the first stage orders the rest (measurements: docs/how-it-works.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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

USUAL_SPREAD = 2.8  # measured standard deviation of a cross-encoder's logits over 20 candidates (docs/how-it-works.md)

MAX_SPREAD = 3 * USUAL_SPREAD
"""Scores with a larger spread are not the logits of a cross-encoder; they have another scale."""

ABOVE_MEAN_WEIGHT = 0.2
"""Measured weight of a logit's distance above the mean, relative to the softmax share of the hit."""

RANK_OFFSET = 2  # constant that damps reciprocal ranks, like 60 in RRF

NEIGHBORS = 3  # number of nearest candidates that are used per hit, chosen by measurement

KNOWN_NEIGHBORS = 5  # number of neighbors that are computed per hit, so that enough remain if some are dropped

_COSINE_STEPS = 100_000  # to this precision, sums of float32 products are equal on every machine
_MIN_PROBABILITY = 1e-6  # probabilities of 0 and 1 have no finite log-odds; the models' logits reach about ±12

Method = Literal["promote", "z-score", "rank"]

Neighbors = Mapping[str, Sequence[tuple[str, float]]]
"""Id -> its nearest other candidates with their cosines, nearest first."""


@dataclass(frozen=True, slots=True)
class ShapeResult:
    """Hits in their new order, dropped hits, notes on relaxed rules, ids that a later cut must keep, and records."""

    kept: tuple[Hit, ...]
    cut: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()
    protected: frozenset[str] = frozenset()
    records: tuple[StageRecord, ...] = ()

    @property
    def ids(self) -> list[str]:
        """The ids of the kept hits, in order."""
        return [hit.id for hit in self.kept]


class ShapeApplied(Event, name="shape"):
    """A shaping step processed a list of candidates."""

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

    `hit_notes` maps ids to notes. A step that changes scores passes its own record.
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

    score = (1 − weight) × first stage + weight × reranker. The first-stage part is the mean of the hit's
    z-scores over the stores. The reranker part depends on the method:

    promote   (spread × share + 0.2 × above) / 2.8: the hit's share of exp(logit / temperature) over all
              candidates times the spread of the logits, and the distance of its logit above their mean.
              It promotes confident hits and demotes none; equal scores change nothing
    z-score   the z-score over the candidates: promotes and demotes hits
    rank      1 / (2 + rank): only the order of the reranker counts

    Scores on another scale than logits (`ScorerInfo.score_scale`) are first stretched to the usual spread of
    logits. Weight 1 gives exactly the order of the reranker, and weight 0 exactly that of the first stage.

    Without a weight, the fitted model of the default order derives one from the candidates (`order_model`).

    `neighbors` is the share of the distance by which a hit moves up toward the mean score of its three
    nearest candidates, if that is higher. With the fitted weight, a hit above the mean also moves down
    toward it, by a fraction of that share.
    """

    weight: float | None = option(
        "Weight of the reranker: 1 uses only the reranker, 0 only the first stage; fitted by default.",
        default=None,
        min=0,
        max=1,
    )
    method: Method = option("Method of blending scores.", default="promote")
    temperature: float = option(
        "Temperature of `promote`: with a low value, only the most confident hit is promoted.", default=1.0, gt=0
    )
    neighbors: float = option(
        "Share of the distance by which a hit moves up toward the mean of its three nearest candidates; 0 disables it.",
        default=0.5,
        min=0,
        max=1,
        aliases=["neighbours"],
    )
    reranker_shift: float = option(
        "Value added to the fitted weight; resift tune finds it.", default=0.0, min=-1, max=1
    )

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def uses_neighbors(self) -> bool:
        """Whether neighbors of the candidates affect the result."""
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
    """Order hits by the first-stage evidence and the reranker scores in the trace.

    If several rerankers scored the hits, each has its own scale, and the last score of a hit counts. Unscored
    hits keep their first-stage value. Without reranker scores or first-stage evidence, the order does not
    change. A ranking already has a trace. `neighbors` is the result of `nearest_neighbors`; its name was
    `near` in 0.2. `model` replaces the fitted model of the default order.
    """
    rules = policy or Blend()
    ids = [hit.id for hit in hits]
    known = known_evidence or evidence(get_trace(hits) if trace is None else trace, ids)
    # The last rerank stage with a score provides the languages and the name in the note.
    last = next((s for s in reversed(known.rerank_scores) if any(v is not None for v in s.scores)), None)
    in_lists = any(known.fused.ranks) or any(any(column.ranks) for column in known.lists().values())
    if last is None or not in_lists:
        record = make_record(StageKind.GUARD, STAGE, hits, note="nothing to blend")
        return shape_result(STAGE, hits, hits, record=record, sink=sink)
    first_stage = known.first_stage_values()
    if rules.weight is None:
        weight_model = model or order_model.default_model()
        if rules.reranker_shift:
            weight_model = weight_model.shifted(reranker=rules.reranker_shift)
        pairs = [(score, value) for score, value in zip(last.scores, first_stage, strict=True) if score is not None]
        scores, values = zip(*pairs, strict=True)
        facts = dict(known.fusion.evidence)
        facts |= scorer_facts(to_logits(scores, last.score_scale), values, facts)
        weight, reason = weight_model.reranker_weight(facts, last.languages)
        demotion = weight_model.demotion(facts)
        note = f"{last.provider} weight {weight:.2g}{reason and f': {reason}'}"
        weights = {"first stage": 1 - weight, last.provider: weight}
    else:
        weight, demotion, note, weights = rules.weight, 0.0, "", {}
    parts: Mapping[str, Mapping[str, float]] = {}
    notes: dict[str, str] = {}
    if weight in (0, 1):
        # A single side keeps its own scores and ties, which a weighted sum would change.
        kept = _order_by_one_side(hits, known, reranker=weight == 1)
    else:
        providers, boosts = reranker_boosts(known.rerank_scores, rules, size=len(hits))
        totals = [(1 - weight) * value + weight * boost for value, boost in zip(first_stage, boosts, strict=True)]
        moves: list[float] = []
        near = neighbors or near
        if near and rules.neighbors and known.uses_vectors():
            moves = [rules.neighbors * move for move in neighbor_boosts(ids, totals, near, demotion=demotion)]
            totals = [value + move for value, move in zip(totals, moves, strict=True)]
        # Sort by total, then id, then position. Two sorts are three times as fast as one sort of tuples.
        order = sorted(range(len(hits)), key=ids.__getitem__)
        order.sort(key=totals.__getitem__, reverse=True)
        kept = with_scores([hits[i] for i in order], [totals[i] for i in order])
        notes = {id: "not reranked" for id, provider in zip(ids, providers, strict=True) if provider is None}
        parts = LazyParts(
            partial(_blend_parts, known, first_stage, weight, providers=providers, boosts=boosts, moves=moves)
        )
    record = StageRecord(
        kind=StageKind.GUARD,
        name=STAGE,
        ids=tuple([hit.id for hit in kept]),
        scores=tuple([hit.score for hit in kept]),
        parts=parts,
        notes=notes,
        weights=weights,
        note=note,
    )
    return shape_result(STAGE, hits, kept, record=record, sink=sink)


def _blend_parts(
    known: Evidence,
    first_stage: Sequence[float],
    weight: float,
    *,
    providers: Sequence[str | None],
    boosts: Sequence[float],
    moves: Sequence[float],
) -> dict[str, dict[str, float]]:
    """Return the terms of the blended scores: part -> id -> value."""
    ids = known.ids
    fused = known.first_stage_parts() or {"first stage": dict(zip(ids, first_stage, strict=True))}
    columns = {name: {id: (1 - weight) * value for id, value in column.items()} for name, column in fused.items()}
    for name in dict.fromkeys(provider for provider in providers if provider is not None):
        columns[name] = {id: weight * boosts[i] for i, id in enumerate(ids) if providers[i] == name}
    if any(moves):
        columns["neighbors"] = {id: move for id, move in zip(ids, moves, strict=True) if move}
    return columns


def _order_by_one_side(hits: Sequence[Hit], known: Evidence, *, reranker: bool) -> list[Hit]:
    """Order hits by the reranker or the first stage alone; hits that it did not rank follow in their order."""
    size = len(hits)
    # The sort key of each hit (lower is better, infinity means not ranked), and its new score.
    keys = [(math.inf, 0.0)] * size
    scores: list[float | None] = [None] * size
    if reranker:
        # A later reranker scores the best hits of an earlier one, so its hits come first.
        for i, stage in enumerate(known.rerank_scores):
            for j, score in enumerate(stage.scores):
                if score is not None:
                    keys[j], scores[j] = (-float(i), -score), score
    else:
        lists = known.lists().values() if None in known.fused.ranks else ()
        for j, (rank, score) in enumerate(zip(*known.fused, strict=True)):
            entries = [(rank, score)] if rank is not None else [(c.ranks[j], c.scores[j]) for c in lists]
            ranked = [(entry_rank, value) for entry_rank, value in entries if entry_rank is not None]
            if ranked:
                best_rank, scores[j] = min(ranked, key=lambda entry: entry[0])
                keys[j] = (float(best_rank), 0.0)
    rows = [
        (*key, hit.id if math.isfinite(key[0]) else "", j) for j, (hit, key) in enumerate(zip(hits, keys, strict=True))
    ]
    order = [row[-1] for row in sorted(rows)]
    return with_scores([hits[j] for j in order], [scores[j] for j in order])


def reranker_boosts(
    stages: Sequence[RerankScores], policy: Blend, *, size: int
) -> tuple[list[str | None], list[float]]:
    """Return the provider that scored each hit last, and the boosts before weighting; 0 if unscored."""
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
    # Relative to the best logit, so that no exponential overflows; the shares stay the same.
    best = max(logits)
    odds = [math.exp((value - best) / rules.temperature) for value in logits]
    mean, spread = mean_and_deviation(logits)
    share = spread / math.fsum(odds)
    boosts = [share * odd + ABOVE_MEAN_WEIGHT * max(0.0, value - mean) for odd, value in zip(odds, logits, strict=True)]
    return [value / USUAL_SPREAD for value in boosts]


def to_logits(scores: Sequence[float], scale: ScoreScale) -> Sequence[float]:
    """Return scores as logits: unchanged, as log-odds of probabilities, or scaled to the usual spread.

    Log-odds with a smaller spread than usual logits come from another scale and are stretched as well. Logits
    with more than three times the usual spread also come from another scale and are shrunk.
    """
    if scale == "logit" and mean_and_deviation(scores)[1] <= MAX_SPREAD:
        return scores
    # Scores outside the declared range are not probabilities.
    if scale not in ("cosine", "logit") and min(scores) >= 0 and max(scores) <= 1:
        clamped = [min(max(score, _MIN_PROBABILITY), 1 - _MIN_PROBABILITY) for score in scores]
        odds = [math.log(score / (1 - score)) for score in clamped]
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
    """Return the nearest other ids of each id by cosine; ties are sorted by id, and only positive cosines count."""
    ids = sorted(vectors)
    if len(ids) < 2:
        return {}
    rows: Array = np.asarray([vectors[id] for id in ids], dtype=np.float32)
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    rows = rows / np.where(lengths > 0, lengths, 1)
    # Row by row, because such small products run in this thread; waiting for other threads may take ten times as long.
    cosines = np.stack([rows @ row for row in rows])
    # Integer keys with the position in their last digits: a single sort orders by cosine and then by id.
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
    """Return the distance of each hit's value below the mean of its nearest candidates, weighted by cosine.

    For a hit above the mean, the result is negative and multiplied by `demotion`. It is 0 for hits without
    neighbors among the candidates.
    """
    by_id = dict(zip(ids, values, strict=True))
    boosts: list[float] = []
    for id, hit_value in zip(ids, values, strict=True):
        total = weights = 0.0
        remaining = count
        for other, cosine in neighbors.get(id, ()):
            value = by_id.get(other)
            if value is not None and cosine > 0:
                total += cosine * (value - hit_value)
                weights += cosine
                remaining -= 1
                if not remaining:
                    break
        factor = 1.0 if total > 0 else demotion
        boosts.append(factor * (total / weights) if factor and weights else 0.0)
    return boosts
