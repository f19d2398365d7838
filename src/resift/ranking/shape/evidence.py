"""What a trace says of hits, as columns beside them: places in the stores' lists, fused and rerank scores.

Stages are looked up by kind, so no display name can hide one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


class Evidence:
    """What tells the relevance of each hit: places in the stores' lists, in the fused list, rerank scores.

    `weighed` says that the fused scores are the first stage's evidence already, on one scale; `facts` is what
    their weights were decided by. `firsts` counts per id the stores whose list it leads. `lists` may be a
    function: with weighted fusion nobody reads these columns, and they are the largest part of the work.
    """

    def __init__(
        self,
        lists: Mapping[str, Column] | Callable[[], Mapping[str, Column]],
        fused: Column,
        judged: tuple[Judged, ...],
        *,
        weighed: bool = False,
        facts: Mapping[str, float] | None = None,
        firsts: Mapping[str, int] | None = None,
    ) -> None:
        self._lists = lists
        self.fused = fused
        self.judged = judged
        self.weighed = weighed
        self.facts = facts or {}
        self.firsts = firsts or {}

    @property
    def lists(self) -> Mapping[str, Column]:
        """One column per store."""
        if callable(self._lists):
            self._lists = self._lists()
        return self._lists

    @property
    def has_first_stage(self) -> bool:
        """Whether any hit has a place in a list, fused or of a store."""
        if any(rank is not None for rank in self.fused.ranks):
            return True
        return any(rank is not None for column in self.lists.values() for rank in column.ranks)

    def last_judged(self) -> list[tuple[str, float] | None]:
        """Return per hit the provider and score of the last stage that scored it."""
        scored: list[tuple[str, float] | None] = [None] * len(self.fused.ranks)
        for one in self.judged:
            scored = [
                before if score is None else (one.provider, score)
                for before, score in zip(scored, one.scores, strict=True)
            ]
        return scored

    def judges(self, at: int) -> int:
        """Return how many different providers scored the hit at a place."""
        return len({one.provider for one in self.judged if one.scores[at] is not None})


def evidence(trace: Trace, ids: Sequence[str]) -> Evidence:
    """Read the evidence for these ids: the best place per store, the last fused list, every rerank score."""
    # A hit that was fused with another is known to the lists by its old id.
    merged = {other: id for record in trace for other, id in record.merged.items()}
    retrieved = trace.of(StageKind.RETRIEVE)
    leaders = {
        (record.source, merged.get(record.ids[0], record.ids[0])) for record in retrieved if record.ids
    }
    fused = trace.of(StageKind.FUSE)
    nowhere = Column((None,) * len(ids), (None,) * len(ids))
    return Evidence(
        lambda: _store_columns(retrieved, ids, merged),
        _column(fused[-1], ids, {}) if fused else nowhere,
        tuple(
            Judged(
                record.source or record.name,
                _scores(record.ids, record.scores, ids),
                record.score_scale or "unknown",
                record.languages or "any",
            )
            for record in trace.of(StageKind.RERANK)
        ),
        weighed=bool(fused and fused[-1].weights),
        facts=fused[-1].evidence if fused else {},
        firsts=Counter(id for _, id in leaders),
    )


def _store_columns(
    records: Sequence[StageRecord], ids: Sequence[str], merged: Mapping[str, str]
) -> dict[str, Column]:
    lists: dict[str, Column] = {}
    for record in records:
        column = _column(record, ids, merged)
        known = lists.get(record.source)
        lists[record.source] = column if known is None else _better(known, column)
    return lists


def _column(record: StageRecord, ids: Sequence[str], merged: Mapping[str, str]) -> Column:
    own: Sequence[str] = [merged.get(id, id) for id in record.ids] if merged else record.ids
    # From the last to the first, so that of an id listed twice the better place stays.
    ranks = dict(zip(reversed(own), range(len(own), 0, -1), strict=True))
    return Column(list(map(ranks.get, ids)), _scores(own, record.scores, ids))


def _scores(own: Sequence[str], scores: Sequence[float | None], ids: Sequence[str]) -> Sequence[float | None]:
    if not scores:
        return [None] * len(ids)
    return list(map(dict(zip(reversed(own), reversed(scores), strict=True)).get, ids))


def _better(one: Column, other: Column) -> Column:
    """Return the better place of each hit in two lists of one store."""
    pairs = [
        (rank, score)
        if other_rank is None or (rank is not None and rank <= other_rank)
        else (other_rank, also)
        for rank, score, other_rank, also in zip(*one, *other, strict=True)
    ]
    return Column([rank for rank, _ in pairs], [score for _, score in pairs])
