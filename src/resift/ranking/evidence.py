"""Evidence about hits in a trace, as columns parallel to the hits: ranks in lists, fused and rerank scores.

Stages are found by kind, so display names do not matter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from resift.ranking.scaling import list_z_scores
from resift.types import Languages, ScoreScale, StageKind, StageRecord, Trace


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

    `weighted` means that the fused scores combine the lists on one scale; `facts` are the facts that set the
    weights, and `fused_parts` the terms of the fused scores per list. `firsts` counts per id the stores
    whose list it leads.
    """

    ids: Sequence[str]
    fused: Column
    rerank_scores: tuple[RerankScores, ...] = ()
    retrieved: tuple[StageRecord, ...] = ()
    merged: Mapping[str, str] = field(default_factory=dict)
    weighted: bool = False
    facts: Mapping[str, float] = field(default_factory=dict)
    firsts: Mapping[str, int] = field(default_factory=dict)
    fused_parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    def lists(self) -> dict[str, Column]:
        """Return a column per store: the better rank of a hit where a store has several lists."""
        columns: dict[str, Column] = {}
        for record in self.retrieved:
            column = _column(record, self.ids, self.merged)
            other = columns.get(record.source)
            columns[record.source] = column if other is None else _better_ranks(other, column)
        return columns

    def first_stage_values(self) -> list[float]:
        """Return per hit the mean over stores of its z-score among the candidates.

        A list with equal scores is read by its ranks. A hit that a store did not return counts as the last
        of its list, or as 0 if the list is shorter than the longest one: the store had no more matches.
        Without lists the fused scores are used. After weighted fusion they are the values.
        """
        if self.weighted:
            return [score or 0.0 for score in self.fused.scores]
        lists = self.lists()
        depths = {store: max((rank or 0 for rank in column.ranks), default=0) for store, column in lists.items()}
        lengths = {store: depth for store, depth in depths.items() if depth}
        if not lengths:
            return list_z_scores(*self.fused, ended=False)
        longest = max(lengths.values())
        columns = [list_z_scores(*lists[store], ended=length < longest) for store, length in sorted(lengths.items())]
        if len(columns) == 2:  # the usual case, and the order of two terms does not change their sum
            return [(a + b) / 2 for a, b in zip(*columns, strict=True)]
        # fsum, because plain addition would make the order of stores matter in the last digit.
        return [math.fsum(row) / len(columns) for row in zip(*columns, strict=True)]

    def first_stage_parts(self) -> dict[str, dict[str, float]]:
        """Return the terms of weighted fusion by retrieval mode, or by list for other modes."""
        if not self.weighted:
            return {}
        modes = {record.source: record.retrieval_mode for record in self.retrieved}
        parts: dict[str, dict[str, float]] = {}
        for label, column in self.fused_parts.items():
            name = _MODE_NAMES.get(modes.get(label, ""), label)
            terms = {id: column[id] for id in self.ids if id in column}
            if name in parts:
                terms = parts[name] | {id: parts[name].get(id, 0.0) + value for id, value in terms.items()}
            parts[name] = terms
        return parts

    def uses_vectors(self) -> bool:
        """Whether vector search counts; without it, similar vectors say nothing about the hits either."""
        dense = {record.source for record in self.retrieved if record.retrieval_mode == "dense"}
        weights = [weight for label, weight in self.weights.items() if label in dense]
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
        leads = {id for id, lists in self.firsts.items() if lists >= firsts}
        leader = None
        scores = sorted([score for score in self.fused.scores if score is not None])
        if len(scores) > 2:  # the lead of one over another is the whole range
            second, best = scores[-2:]
            if best > second and best - second >= margin * (best - scores[0]):
                leader = self.fused.scores.index(best)
        strong: dict[str, str] = {}
        for i in [i for i, id in enumerate(self.ids) if id in leads or i == leader]:
            if len({stage.provider for stage in self.rerank_scores if stage.scores[i] is not None}) <= opinions:
                id = self.ids[i]
                in_lists = f"first in {self.firsts[id]} lists"
                strong[id] = in_lists if id in leads else "first of the fused by a wide margin"
        return strong


def evidence(trace: Trace, ids: Sequence[str]) -> Evidence:
    """Read the evidence for these ids: the best rank per store, the last fused list, every rerank score."""
    retrieved: list[StageRecord] = []
    reranked: list[RerankScores] = []
    fused: StageRecord | None = None
    merged: dict[str, str] = {}  # the lists know a hit that was merged into another by its old id
    for record in trace:
        merged.update(record.merged)
        if record.kind is StageKind.RETRIEVE:
            retrieved.append(record)
        elif record.kind is StageKind.FUSE:
            fused = record
        elif record.kind is StageKind.RERANK:
            _, scores = _column(record, ids, {})
            scale, languages = record.score_scale or "unknown", record.languages or "any"
            reranked.append(RerankScores(record.source or record.name, scores, scale, languages))
    leaders = {(record.source, merged.get(record.ids[0], record.ids[0])) for record in retrieved if record.ids}
    absent = (None,) * len(ids)
    return Evidence(
        ids,
        Column(absent, absent) if fused is None else _column(fused, ids, {}),
        tuple(reranked),
        tuple(retrieved),
        merged,
        weighted=fused is not None and bool(fused.weights),
        facts={} if fused is None else fused.evidence,
        firsts=Counter(id for _, id in leaders),
        fused_parts={} if fused is None else fused.parts,
        weights={} if fused is None else fused.weights,
    )


def _column(record: StageRecord, ids: Sequence[str], merged: Mapping[str, str]) -> Column:
    if record.ids == tuple(ids) and not merged and len(set(ids)) == len(ids):  # such as those of the last stage
        return Column(range(1, len(ids) + 1), record.scores or [None] * len(ids))
    known = [merged.get(id, id) for id in record.ids] if merged else record.ids
    # From the last to the first, so that the better rank of an id that is listed twice stays.
    ranks = list(map(dict(zip(reversed(known), range(len(known), 0, -1), strict=True)).get, ids))
    scores = record.scores
    return Column(ranks, [scores[rank - 1] if rank and scores else None for rank in ranks])


def _better_ranks(first: Column, second: Column) -> Column:
    pairs = [
        (rank, score) if other_rank is None or (rank is not None and rank <= other_rank) else (other_rank, other_score)
        for rank, score, other_rank, other_score in zip(*first, *second, strict=True)
    ]
    return Column([rank for rank, _ in pairs], [score for _, score in pairs])
