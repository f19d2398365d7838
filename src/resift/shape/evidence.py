"""What a trace says of hits, as columns beside them: places in the stores' lists, fused and rerank scores.

Stages are looked up by kind, so no display name can hide one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from resift.types import Languages, ScoreScale, StageKind, StageRecord, Trace


class Column(NamedTuple):
    """Where each hit stood in one list, and its score there: None where it was not in it, or not judged."""

    ranks: Sequence[int | None]
    scores: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Judged:
    """Scores of one rerank stage, None for hits without one, with the scale and languages of its scorer."""

    provider: str
    scores: Sequence[float | None]
    score_scale: ScoreScale = "unknown"
    languages: Languages = "any"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What tells the relevance of each hit: places in the stores' lists, in the fused list, judgements.

    `weighed` says that the fused scores are the first stage's evidence already, on one scale; `facts` is what
    their weights were decided by.
    """

    lists: Mapping[str, Column]
    fused: Column
    judged: tuple[Judged, ...]
    weighed: bool = False
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_first_stage(self) -> bool:
        """Whether any hit has a place in a list, stores' or fused."""
        columns = (*self.lists.values(), self.fused)
        return any(rank is not None for column in columns for rank in column.ranks)

    def last_judged(self) -> list[tuple[str, float] | None]:
        """Return per hit the provider and score of the last stage that judged it."""
        said: list[tuple[str, float] | None] = [None] * len(self.fused.ranks)
        for one in self.judged:
            said = [
                before if score is None else (one.provider, score)
                for before, score in zip(said, one.scores, strict=True)
            ]
        return said

    def judges(self, at: int) -> int:
        """Return how many different providers judged the hit at a place."""
        return len({one.provider for one in self.judged if one.scores[at] is not None})


def evidence(trace: Trace, ids: Sequence[str]) -> Evidence:
    """Read the evidence for these ids: the best place per store, the last fused list, every judgement."""
    # A hit that was fused with another is known to the lists by its old id.
    merged = {other: id for record in trace for other, id in record.merged.items()}
    lists: dict[str, Column] = {}
    for record in trace.of(StageKind.RETRIEVE):
        column = _column(record, ids, merged)
        held = lists.get(record.source)
        lists[record.source] = column if held is None else _better(held, column)
    fused = trace.of(StageKind.FUSE)
    nowhere = Column((None,) * len(ids), (None,) * len(ids))
    return Evidence(
        lists,
        _column(fused[-1], ids, {}) if fused else nowhere,
        tuple(
            Judged(
                record.source or record.name,
                _column(record, ids, {}).scores,
                record.score_scale or "unknown",
                record.languages or "any",
            )
            for record in trace.of(StageKind.RERANK)
        ),
        weighed=bool(fused and fused[-1].weights),
        facts=fused[-1].evidence if fused else {},
    )


def _column(record: StageRecord, ids: Sequence[str], merged: Mapping[str, str]) -> Column:
    own: Sequence[str] = [merged.get(id, id) for id in record.ids] if merged else record.ids
    # From the last to the first, so that of an id listed twice the better place stays.
    ranks = dict(zip(reversed(own), range(len(own), 0, -1), strict=True))
    scores = dict(zip(reversed(own), reversed(record.scores), strict=True)) if record.scores else {}
    return Column([ranks.get(id) for id in ids], [scores.get(id) for id in ids])


def _better(one: Column, other: Column) -> Column:
    """Return the better place of each hit in two lists of one store."""
    pairs = [
        (rank, score)
        if other_rank is None or (rank is not None and rank <= other_rank)
        else (other_rank, also)
        for rank, score, other_rank, also in zip(*one, *other, strict=True)
    ]
    return Column([rank for rank, _ in pairs], [score for _, score in pairs])
