"""Comparison of outcomes: mean differences, significance, wins and losses, and the documents that moved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from resift.evaluation.measures import bootstrap_interval, holm, randomization_p
from resift.evaluation.runner import Answer, Outcome, PathStep
from resift.types import StageKind

TIE = 1e-9
"""Smaller differences are rounding errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference of `other` from `base` in one measure, over the queries that both answered."""

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
        """The mean difference, above 0 if `other` is better."""
        return self.other_mean - self.base_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedDocument:
    """A relevant document whose rank changed; None means absent."""

    id: str
    grade: int
    before: int | None
    after: int | None
    why: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedQuery:
    """A query whose value changed, with the relevant documents that moved."""

    query: str
    before: float
    after: float
    documents: tuple[MovedDocument, ...]


def differences(outcomes: Sequence[Outcome], measures: Sequence[str]) -> list[Difference]:
    """Compare every outcome with the first in every measure; p_holm is corrected over all these tests."""
    rows = [_difference(outcomes[0], other, measure) for other in outcomes[1:] for measure in measures]
    corrected = holm([row.p for row in rows])
    return [replace(row, p_holm=p) for row, p in zip(rows, corrected, strict=True)]


def moved_queries(
    base: Outcome, other: Outcome, measure: str, qrels: Mapping[str, Mapping[str, int]], *, limit: int = 5
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
        for query in changed[:limit]
    ]


def _difference(base: Outcome, other: Outcome, measure: str) -> Difference:
    before, after = base.quality.per_query[measure], other.quality.per_query[measure]
    queries = [query for query in before if query in after]
    deltas = [after[query] - before[query] for query in queries]
    # The tests would count rounding errors as wins.
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
        p=randomization_p(deltas),
        p_holm=1.0,
        wins=sum(delta > 0 for delta in deltas),
        ties=sum(delta == 0 for delta in deltas),
        losses=sum(delta < 0 for delta in deltas),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _moved_documents(
    base: Outcome, other: Outcome, query: str, grades: Mapping[str, int]
) -> tuple[MovedDocument, ...]:
    before, after = (
        {id: rank for rank, id in enumerate(outcome.run[query], start=1)} for outcome in (base, other)
    )
    answers = [outcome.answers[query] for outcome in (base, other) if query in outcome.answers]
    titles = {id: title for answer in answers for id, title in answer.titles.items()}
    rows = [
        MovedDocument(
            id=id,
            grade=grade,
            before=before.get(id),
            after=after.get(id),
            why=_explain_move(other.answers.get(query), id),
            title=titles.get(id, ""),
        )
        for id, grade in grades.items()
        if grade > 0 and before.get(id) != after.get(id)
    ]
    # By the better of both ranks; absent documents come last.
    rows.sort(key=lambda row: (min(row.before or 10**6, row.after or 10**6), row.id))
    return tuple(rows[:5])


def _explain_move(answer: Answer | None, id: str) -> str:
    """Name the stage that moved the document most, with its evidence. Run files have no paths."""
    if answer is None:
        return ""
    if id not in answer.paths:
        return "not found by any store, or dropped by a stage"
    path = answer.paths[id]
    ranks = ", ".join(f"{step.where} {step.rank}" for step in path)
    stages = _merge_guard_steps(path)
    moves = [(step.rank - before.rank, step) for before, step in pairwise(stages) if step.rank != before.rank]
    if moves:
        change, stage = max(moves, key=lambda move: abs(move[0]))
        text = f"{ranks}; moved {'down' if change > 0 else 'up'} most by {stage.where}"
        return f"{text}: {stage.evidence}" if stage.evidence else text
    # No stage moved it after fusion, so the evidence of fusion explains its rank.
    return f"{ranks}; {stages[-1].evidence}" if stages and stages[-1].evidence else ranks


def _merge_guard_steps(path: Sequence[PathStep]) -> list[PathStep]:
    """Return the steps after retrieval, with a reranker and the guard after it as one step."""
    stages: list[PathStep] = []
    before = ""
    for step in path:
        if step.kind == StageKind.GUARD and before == StageKind.RERANK:
            stages[-1] = step._replace(where=f"{stages[-1].where} and {step.where}")
        elif step.kind != StageKind.RETRIEVE:
            stages.append(step)
        before = step.kind
    return stages
