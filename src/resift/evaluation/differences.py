"""Two outcomes against each other: means, significance, wins and losses, and what moved and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from resift.evaluation.running import Outcome
from resift.evaluation.significance import bootstrap_interval, holm, randomisation_p
from resift.evaluation.work_file import Answer, Stop
from resift.types import StageKind

TIE = 1e-9
"""Values closer than this are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How `other` differs from `base` in one measure, over the queries that both answered."""

    measure: str
    base: str
    other: str
    queries: int
    base_mean: float
    other_mean: float
    low: float
    high: float
    p: float
    p_holm: float
    wins: int
    ties: int
    losses: int

    @property
    def mean(self) -> float:
        """The mean difference; above 0 means that `other` is better."""
        return self.other_mean - self.base_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedDocument:
    """A relevant document whose place differs; places count from 1, None is absent."""

    id: str
    grade: int
    before: int | None
    after: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedQuery:
    """A query whose value differs, and its relevant documents that stand elsewhere."""

    query: str
    before: float
    after: float
    documents: tuple[MovedDocument, ...]


def differences(outcomes: Sequence[Outcome], measures: Sequence[str]) -> list[Difference]:
    """Compare every outcome with the first in every measure; p_holm is corrected over all these tests."""
    found = [_difference(outcomes[0], other, measure) for other in outcomes[1:] for measure in measures]
    corrected = holm([one.p for one in found])
    return [replace(one, p_holm=p) for one, p in zip(found, corrected, strict=True)]


def moved(
    base: Outcome, other: Outcome, measure: str, qrels: Mapping[str, Mapping[str, int]], *, most: int = 5
) -> list[MovedQuery]:
    """Return the queries whose value changed most, the largest change first."""
    before, after = base.quality.per_query[measure], other.quality.per_query[measure]
    changed = [query for query in before if query in after and abs(after[query] - before[query]) > TIE]
    changed.sort(key=lambda query: (-abs(after[query] - before[query]), query))
    return [
        MovedQuery(
            query=query,
            before=before[query],
            after=after[query],
            documents=_moved_documents(base, other, query, qrels[query]),
        )
        for query in changed[:most]
    ]


def _difference(base: Outcome, other: Outcome, measure: str) -> Difference:
    before, after = base.quality.per_query[measure], other.quality.per_query[measure]
    queries = [query for query in before if query in after]
    deltas = [after[query] - before[query] for query in queries]
    # Rounding is no win: the tests below would count it as one.
    deltas = [0.0 if abs(delta) <= TIE else delta for delta in deltas]
    low, high = bootstrap_interval(deltas)
    return Difference(
        measure=measure,
        base=base.name,
        other=other.name,
        queries=len(queries),
        base_mean=_mean([before[query] for query in queries]),
        other_mean=_mean([after[query] for query in queries]),
        low=low,
        high=high,
        p=randomisation_p(deltas),
        p_holm=1.0,
        wins=sum(delta > 0 for delta in deltas),
        ties=sum(delta == 0 for delta in deltas),
        losses=sum(delta < 0 for delta in deltas),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _moved_documents(
    base: Outcome, other: Outcome, query: str, judged: Mapping[str, int]
) -> tuple[MovedDocument, ...]:
    before, after = _places(base.run[query]), _places(other.run[query])
    rows = [
        MovedDocument(
            id=id,
            grade=grade,
            before=before.get(id),
            after=after.get(id),
            why=_why(other.answers.get(query), id),
        )
        for id, grade in judged.items()
        if grade > 0 and before.get(id) != after.get(id)
    ]
    # By the better of both places, where a reader looks first; what is absent stands behind every place.
    rows.sort(key=lambda row: (min(row.before or 10**6, row.after or 10**6), row.id))
    return tuple(rows[:5])


def _places(ids: Sequence[str]) -> dict[str, int]:
    return {id: place for place, id in enumerate(ids, start=1)}


def _why(answer: Answer | None, id: str) -> str:
    """Say in words which stage moved the document most, and by which evidence; run files have no paths."""
    if answer is None:
        return ""
    if id not in answer.paths:
        return "no store found it, or a stage threw it out"
    path = answer.paths[id]
    places = ", ".join(f"{stop.where} {stop.rank}" for stop in path)
    stages = _stages(path)
    jumps = [(stop.rank - before.rank, stop) for before, stop in pairwise(stages) if stop.rank != before.rank]
    if jumps:
        jump, stage = max(jumps, key=lambda one: abs(one[0]))
        said = f"{'sunk' if jump > 0 else 'lifted'} most by {stage.where}"
        return f"{places}; {said}: {stage.evidence}" if stage.evidence else f"{places}; {said}"
    # Nothing moved it after the lists were fused: what they gave it is the whole story.
    return f"{places}; {stages[-1].evidence}" if stages and stages[-1].evidence else places


def _stages(path: Sequence[Stop]) -> list[Stop]:
    """Return the stages after the lists; a reranker and the guard that weighs its word are one."""
    stages: list[Stop] = []
    before = ""
    for stop in path:
        if stop.kind == StageKind.GUARD and before == StageKind.RERANK:
            stages[-1] = stop._replace(where=f"{stages[-1].where} and {stop.where}")
        elif stop.kind != StageKind.RETRIEVE:
            stages.append(stop)
        before = stop.kind
    return stages
