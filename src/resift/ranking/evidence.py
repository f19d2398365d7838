"""Scores on a common scale, and the evidence about hits in a trace: ranks in lists, fused and rerank scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from resift.types import Languages, ScoreScale, StageKind, StageRecord, Trace


def min_max(scores: Sequence[float]) -> list[float]:
    """Map to [0, 1]; equal scores are all 1.0, because each is the best of its list."""
    if not scores:
        return []
    low, high = min(scores), max(scores)
    if high == low:
        return [1.0] * len(scores)
    # Halved first: the difference of two huge scores would overflow.
    span = high / 2 - low / 2
    return [(score / 2 - low / 2) / span for score in scores]


def z_scores(values: Sequence[float]) -> list[float]:
    """Return the distances from the mean in (population) standard deviations; equal values are all 0."""
    if not values:
        return []
    # Scaled first, so that squares of huge scores stay finite.
    low, high = min(values), max(values)
    size = max(-low, high) or 1.0
    scaled = [value / size for value in values]
    mean = math.fsum(scaled) / len(scaled)
    centered = [value - mean for value in scaled]
    deviation = math.sqrt(math.fsum([value * value for value in centered]) / len(centered))
    if deviation < 1e-12:  # rounding noise, not a difference
        return [0.0] * len(values)
    return [value / deviation for value in centered]


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and (population) standard deviation of at least one value."""
    low, high = min(values), max(values)
    size = max(-low, high) or 1.0  # as above: squares stay finite
    scaled = [value / size for value in values]
    mean = math.fsum(scaled) / len(scaled)
    deviation = math.sqrt(math.fsum([(value - mean) ** 2 for value in scaled]) / len(scaled))
    return size * mean, size * deviation


def list_z_scores(ranks: Sequence[int | None], scores: Sequence[float | None], *, ended: bool) -> list[float]:
    """Return the z-scores of one store's list over a pool. A None rank is a hit that is not in the list.

    Ranks replace scores that are all equal or partly unknown. A hit that is not in the list counts like its
    last one, or as 0 if the list `ended`, which means that the store had no further match.
    """
    present = len(ranks) - ranks.count(None)
    known = [score for score in scores if score is not None]
    if not present:
        return [0.0] * len(ranks)
    if len(known) < present or min(known) == max(known):
        last = -math.log(max([rank for rank in ranks if rank is not None]) + 1)
        return z_scores([last if rank is None else -math.log(max(1, rank)) for rank in ranks])
    last = min(known)
    if ended and last > 0:
        last = 0.0
    return z_scores([last if score is None else score for score in scores])


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Pearson's correlation of two columns; 0 for fewer than four values, or equal ones."""
    if len(first) < 4:
        return 0.0
    return math.fsum([a * b for a, b in zip(z_scores(first), z_scores(second), strict=True)]) / len(first)


class Column(NamedTuple):
    """Rank and score of each hit in one list; None for hits that it lacks or that have no score."""

    ranks: Sequence[int | None]
    scores: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class RerankScores:
    """Scores of one rerank stage, None for unscored hits, with the scale and languages of its scorer."""

    provider: str
    scores: Sequence[float | None]
    score_scale: ScoreScale = "unknown"
    languages: Languages = "any"


MIN_USED_WEIGHT = 0.01
"""Smallest weight of a list that counts; below it the list only orders hits that no other list has."""

_MODE_NAMES = {"lexical": "keyword search", "dense": "vector search"}


@dataclass(slots=True)
class Evidence:
    """Ranks in the lists of the stores and in the fused list, and the scores of every rerank stage.

    `fusion` is the record of the fused list; only weighted fusion has weights and facts. `merged` has the ids
    that the lists know a hit by which was merged into another.
    """

    ids: Sequence[str]
    fusion: StageRecord
    fused: Column
    retrieved: Sequence[StageRecord]
    rerank_scores: Sequence[RerankScores]
    merged: Mapping[str, str]

    def lists(self) -> dict[str, Column]:
        """Return a column per store: the better rank of a hit where a store has several lists."""
        columns: dict[str, Column] = {}
        for record in self.retrieved:
            column = _column(record, self.ids, self.merged)
            if record.source in columns:
                pairs = zip(zip(*columns[record.source], strict=True), zip(*column, strict=True), strict=True)
                better = [min(pair, key=lambda place: place[0] or math.inf) for pair in pairs]
                column = Column([rank for rank, _ in better], [score for _, score in better])
            columns[record.source] = column
        return columns

    def first_stage_values(self) -> list[float]:
        """Return per hit the mean over stores of its z-score among the candidates.

        A list with equal scores is read by its ranks. A hit that a store did not return counts as the last
        of its list, or as 0 if the list is shorter than the longest one: the store had no more matches.
        Without lists the fused scores are used. After weighted fusion they are the values.
        """
        if self.fusion.weights:
            return [score or 0.0 for score in self.fused.scores]
        lists = self.lists()
        depths = {store: max((rank or 0 for rank in column.ranks), default=0) for store, column in lists.items()}
        lengths = {store: depth for store, depth in depths.items() if depth}
        if not lengths:
            return list_z_scores(*self.fused, ended=False)
        longest = max(lengths.values())
        columns = [list_z_scores(*lists[store], ended=length < longest) for store, length in lengths.items()]
        # fsum, because plain addition would make the order of stores matter in the last digit.
        return [math.fsum(row) / len(columns) for row in zip(*columns, strict=True)]

    def first_stage_parts(self) -> dict[str, dict[str, float]]:
        """Return the terms of weighted fusion by retrieval mode, or by list for other modes."""
        modes = {record.source: record.retrieval_mode for record in self.retrieved}
        parts: dict[str, dict[str, float]] = {}
        for label, column in self.fusion.parts.items() if self.fusion.weights else ():
            name = _MODE_NAMES.get(modes.get(label, ""), label)
            terms = parts.setdefault(name, {})
            terms |= {id: terms.get(id, 0.0) + column[id] for id in self.ids if id in column}
        return parts

    def uses_vectors(self) -> bool:
        """Whether vector search counts; without it, similar vectors say nothing about the hits either."""
        dense = {record.source for record in self.retrieved if record.retrieval_mode == "dense"}
        weights = [weight for label, weight in self.fusion.weights.items() if label in dense]
        return not weights or max(weights) > MIN_USED_WEIGHT

    def last_scores(self) -> list[tuple[str, float] | None]:
        """Return per hit the provider and score of the last stage that scored it."""
        last: list[tuple[str, float] | None] = [None] * len(self.ids)
        for stage in self.rerank_scores:
            for i, score in enumerate(stage.scores):
                if score is not None:
                    last[i] = (stage.provider, score)
        return last

    def strong_hits(self, *, firsts: int, margin: float, opinions: int) -> dict[str, str]:
        """Return the ids of strong first-stage hits by the options of `Guard`, each with the reason."""
        lists = [(record.source, record.ids[0]) for record in self.retrieved if record.ids]
        leads = Counter([id for _, id in {(source, self.merged.get(id, id)) for source, id in lists}])
        reasons = {id: f"first in {count} lists" for id, count in leads.items() if count >= firsts}
        scores = sorted([score for score in self.fused.scores if score is not None])
        if len(scores) > 2:  # the lead of one over another is the whole range
            second, best = scores[-2:]
            if best > second and best - second >= margin * (best - scores[0]):
                leader = self.ids[self.fused.scores.index(best)]
                reasons.setdefault(leader, "first of the fused by a wide margin")
        strong: dict[str, str] = {}
        for i, id in enumerate(self.ids) if reasons else ():
            if id in reasons:
                scorers = {stage.provider for stage in self.rerank_scores if stage.scores[i] is not None}
                if len(scorers) <= opinions:
                    strong[id] = reasons[id]
        return strong


def evidence(trace: Trace, ids: Sequence[str]) -> Evidence:
    """Read the evidence for these ids: the best rank per store, the last fused list, every rerank score."""
    fusion = StageRecord(kind=StageKind.FUSE, name="", ids=())  # of a trace without one
    retrieved: list[StageRecord] = []
    reranked: list[RerankScores] = []
    merged: dict[str, str] = {}
    for record in trace:
        merged.update(record.merged)
        if record.kind is StageKind.RETRIEVE:
            retrieved.append(record)
        elif record.kind is StageKind.FUSE:
            fusion = record
        elif record.kind is StageKind.RERANK:
            _, scores = _column(record, ids, {})
            scale, languages = record.score_scale or "unknown", record.languages or "any"
            reranked.append(RerankScores(record.source or record.name, scores, scale, languages))
    return Evidence(ids, fusion, _column(fusion, ids, {}), retrieved, reranked, merged)


def _column(record: StageRecord, ids: Sequence[str], merged: Mapping[str, str]) -> Column:
    if record.ids == tuple(ids) and not merged and len(set(ids)) == len(ids):  # such as those of the last stage
        return Column(range(1, len(ids) + 1), record.scores or [None] * len(ids))
    known = [merged.get(id, id) for id in record.ids] if merged else record.ids
    # From the last to the first, so that the better rank of an id that is listed twice stays.
    ranks = list(map(dict(zip(reversed(known), range(len(known), 0, -1), strict=True)).get, ids))
    scores = record.scores
    return Column(ranks, [scores[rank - 1] if rank and scores else None for rank in ranks])
