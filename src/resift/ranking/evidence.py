"""Normalized scores, and the evidence about hits in a trace: ranks in lists, fused scores and rerank scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import NamedTuple

from resift.types import Languages, ScoreScale, StageKind, StageRecord, Trace


def min_max(scores: Sequence[float]) -> list[float]:
    """Map scores to [0, 1]; equal scores all become 1.0, because each is the best in its list."""
    if not scores:
        return []
    low, high = min(scores), max(scores)
    if high == low:
        return [1.0] * len(scores)
    # Halve the scores first, because the difference of two huge scores would overflow.
    span = high / 2 - low / 2
    return [(score / 2 - low / 2) / span for score in scores]


def z_scores(values: Sequence[float]) -> list[float]:
    """Return the distances from the mean in (population) standard deviations; equal values all become 0."""
    if not values:
        return []
    # Scale the values first, so that squares of huge scores stay finite.
    low, high = min(values), max(values)
    size = max(-low, high) or 1.0
    scaled = [value / size for value in values]
    mean = math.fsum(scaled) / len(scaled)
    centered = [value - mean for value in scaled]
    deviation = math.sqrt(math.fsum(map(mul, centered, centered)) / len(centered))
    if deviation < 1e-12:  # rounding noise, not a difference
        return [0.0] * len(values)
    return [value / deviation for value in centered]


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and (population) standard deviation of at least one value."""
    low, high = min(values), max(values)
    size = max(-low, high) or 1.0  # as above, so that squares stay finite
    scaled = [value / size for value in values]
    mean = math.fsum(scaled) / len(scaled)
    deviation = math.sqrt(math.fsum([(value - mean) ** 2 for value in scaled]) / len(scaled))
    return size * mean, size * deviation


def list_z_scores(
    ranks: Sequence[int | None], scores: Sequence[float | None], *, ended: bool, absent: int = 0
) -> list[float]:
    """Return the z-scores of a store's list over a pool. A rank of None means that the hit is not in the list.

    Ranks replace scores that are all equal or partly unknown. A hit that is not in the list counts like the
    last hit of the list, or as 0 if the list `ended`, which means that the store had no further matches.
    `absent` is the number of further hits that are not in the list; their z-scores come last.
    """
    present = len(ranks) - ranks.count(None)
    known = [score for score in scores if score is not None]
    if not present:
        return [0.0] * (len(ranks) + absent)
    if len(known) < present or min(known) == max(known):
        last = -math.log(max([rank for rank in ranks if rank is not None]) + 1)
        values = [last if rank is None else -math.log(max(1, rank)) for rank in ranks]
    else:
        last = min(known)
        if ended and last > 0:
            last = 0.0
        values = [last if score is None else score for score in scores]
    return z_scores(values + [last] * absent)


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Pearson's correlation of two columns; 0 for fewer than four values or for equal values."""
    if len(first) < 4:
        return 0.0
    return math.fsum(map(mul, z_scores(first), z_scores(second))) / len(first)


class Column(NamedTuple):
    """Rank and score of each hit in a list; None if the hit is not in the list or has no score."""

    ranks: Sequence[int | None]
    scores: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class RerankScores:
    """Scores of a rerank stage (None for unscored hits), with the scale and languages of its scorer."""

    provider: str
    scores: Sequence[float | None]
    score_scale: ScoreScale = "unknown"
    languages: Languages = "any"


MIN_USED_WEIGHT = 0.01
"""Minimum weight of a list that counts; with a smaller weight, it only orders hits that no other list has."""

_MODE_NAMES = {"lexical": "keyword search", "dense": "vector search"}


@dataclass(slots=True)
class Evidence:
    """Ranks in the lists of the stores and in the fused list, and the scores of all rerank stages.

    `fusion` is the record of the fused list; only weighted fusion has weights and facts. `merged` maps the id
    of a merged hit, under which the lists contain it, to the id of the hit that replaced it.
    """

    ids: Sequence[str]
    fusion: StageRecord
    fused: Column
    retrieved: Sequence[StageRecord]
    rerank_scores: Sequence[RerankScores]
    merged: Mapping[str, str]

    def lists(self) -> dict[str, Column]:
        """Return one column per store; if a store has several lists, the better rank of a hit counts."""
        columns: dict[str, Column] = {}
        for record in self.retrieved:
            column = _column(record, self.ids, self.merged)
            if record.source in columns:
                pairs = zip(zip(*columns[record.source], strict=True), zip(*column, strict=True), strict=True)
                better = [min(pair, key=lambda entry: entry[0] or math.inf) for pair in pairs]
                column = Column([rank for rank, _ in better], [score for _, score in better])
            columns[record.source] = column
        return columns

    def first_stage_values(self) -> list[float]:
        """Return the mean z-score of each hit over the stores, relative to the candidates.

        If all scores of a list are equal, its ranks are used. A hit that a store did not return counts like the
        last hit of its list, or as 0 if the list is shorter than the longest one, because the store had no more
        matches. Without lists, the fused scores are used. After weighted fusion, the values are the fused scores.
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
        # fsum, because with plain addition the last digit would depend on the order of the stores.
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
        """Whether vector search counts; if it does not, similarity of vectors is not evidence either."""
        dense = {record.source for record in self.retrieved if record.retrieval_mode == "dense"}
        weights = [weight for label, weight in self.fusion.weights.items() if label in dense]
        return not weights or max(weights) > MIN_USED_WEIGHT

    def last_scores(self) -> list[tuple[str, float] | None]:
        """Return the provider and score of the last stage that scored each hit."""
        last: list[tuple[str, float] | None] = [None] * len(self.ids)
        for stage in self.rerank_scores:
            for i, score in enumerate(stage.scores):
                if score is not None:
                    last[i] = (stage.provider, score)
        return last

    def strong_hits(self, *, firsts: int, margin: float, opinions: int) -> dict[str, str]:
        """Return the ids of strong first-stage hits according to the options of `Guard`, each with the reason."""
        lists = [(record.source, record.ids[0]) for record in self.retrieved if record.ids]
        leads = Counter([id for _, id in {(source, self.merged.get(id, id)) for source, id in lists}])
        reasons = {id: f"first in {count} lists" for id, count in leads.items() if count >= firsts}
        scores = sorted([score for score in self.fused.scores if score is not None])
        if len(scores) > 2:  # with two hits, the lead is always the entire range
            second, best = scores[-2:]
            if best > second and best - second >= margin * (best - scores[0]):
                leader = self.ids[self.fused.scores.index(best)]
                reasons.setdefault(leader, "first in the fused list by a wide margin")
        strong: dict[str, str] = {}
        for i, id in enumerate(self.ids) if reasons else ():
            if id in reasons:
                scorers = {stage.provider for stage in self.rerank_scores if stage.scores[i] is not None}
                if len(scorers) <= opinions:
                    strong[id] = reasons[id]
        return strong


def evidence(trace: Trace, ids: Sequence[str]) -> Evidence:
    """Return the evidence for these ids: the best rank per store, the last fused list, and all rerank scores."""
    fusion = StageRecord(kind=StageKind.FUSE, name="", ids=())  # used if the trace contains no fusion
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
    if record.ids == tuple(ids) and not merged and len(set(ids)) == len(ids):  # as in the record of the last stage
        return Column(range(1, len(ids) + 1), record.scores or [None] * len(ids))
    listed_ids = [merged.get(id, id) for id in record.ids] if merged else record.ids
    # From last to first, so that an id that is listed twice keeps its better rank.
    ranks = list(map(dict(zip(reversed(listed_ids), range(len(listed_ids), 0, -1), strict=True)).get, ids))
    scores = record.scores
    return Column(ranks, [scores[rank - 1] if rank and scores else None for rank in ranks])
