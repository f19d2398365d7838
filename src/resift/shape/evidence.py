"""What a trace says of hits, as columns beside them: places in the stores' lists, fused and rerank scores.

Stages are looked up by kind, so no display name can hide one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from resift.types import StageKind, StageRecord, Trace


class Place(NamedTuple):
    """Where a hit stood in one stage, and its score there; None: not judged."""

    rank: int
    score: float | None


@dataclass(frozen=True, slots=True)
class Judged:
    """What one rerank stage said: who judged, and a score per hit, None where it said nothing."""

    provider: str
    scores: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What tells the relevance of each hit: places in the stores' lists, in the fused list, judgements."""

    lists: Mapping[str, Sequence[Place | None]]
    fused: Sequence[Place | None]
    judged: tuple[Judged, ...]

    @property
    def has_first_stage(self) -> bool:
        """Whether any hit has a place in a list, stores' or fused."""
        return any(place is not None for column in (*self.lists.values(), self.fused) for place in column)

    def last_judged(self) -> list[tuple[str, float] | None]:
        """Return per hit the provider and score of the last stage that judged it."""
        said: list[tuple[str, float] | None] = [None] * len(self.fused)
        for one in self.judged:
            said = [
                before if score is None else (one.provider, score)
                for before, score in zip(said, one.scores, strict=True)
            ]
        return said

    def judges(self) -> list[int]:
        """Return per hit how many different providers judged it."""
        said: list[set[str]] = [set() for _ in self.fused]
        for one in self.judged:
            for names, score in zip(said, one.scores, strict=True):
                if score is not None:
                    names.add(one.provider)
        return [len(names) for names in said]


def evidence(trace: Trace, ids: Sequence[str]) -> Evidence:
    """Read the evidence for these ids: the best place per store, the last fused list, every judgement."""
    merged = {other: id for record in trace for other, id in record.merged.items()}
    lists: dict[str, list[Place | None]] = {}
    for record in trace.of(StageKind.RETRIEVE):
        column = _column(record, ids, merged)
        held = lists.get(record.source)
        lists[record.source] = (
            column if held is None else [_better(*pair) for pair in zip(held, column, strict=True)]
        )
    fused = trace.of(StageKind.FUSE)
    return Evidence(
        lists,
        _column(fused[-1], ids, {}) if fused else [None] * len(ids),
        tuple(
            Judged(record.source or record.name, _scores(record, ids))
            for record in trace.of(StageKind.RERANK)
        ),
    )


def _column(record: StageRecord, ids: Sequence[str], merged: Mapping[str, str]) -> list[Place | None]:
    scores: Sequence[float | None] = record.scores or (None,) * len(record.ids)
    places: dict[str, Place] = {}
    # From the last to the first, so that of an id listed twice the better place stays.
    for at in range(len(record.ids) - 1, -1, -1):
        id = record.ids[at]
        places[merged.get(id, id) if merged else id] = Place(at + 1, scores[at])
    return [places.get(id) for id in ids]


def _scores(record: StageRecord, ids: Sequence[str]) -> list[float | None]:
    known = dict(zip(record.ids, record.scores, strict=True)) if record.scores else {}
    return [known.get(id) for id in ids]


def _better(one: Place | None, other: Place | None) -> Place | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda place: place.rank)
