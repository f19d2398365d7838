"""A trace as columns and places: the model behind every picture. Pure functions on a ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from resift.explain.reasons import deciding_parts, why_all
from resift.types import Hit, Ranking, StageKind, StageRecord, Trace


@dataclass(frozen=True, slots=True)
class Column:
    """One stage of the way; a first-stage list has a column of its own.

    `weighs` marks a stage that adds up the evidence of the stages before it anew, as the blend does.
    """

    key: str
    label: str
    by: str = ""
    first_stage: bool = False
    weighs: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a hit stood in one column, with what its score was made of."""

    rank: int
    score: float | None
    parts: tuple[tuple[str, float], ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Path:
    """One hit on its way: its place per column key, its final place (None if it was left out) and why.

    `decided` is the part of the blended score that moved the hit, in words.
    """

    hit: Hit
    places: Mapping[str, Place]
    final: int | None
    why: str
    cut: str = ""
    decided: str = ""

    @property
    def id(self) -> str:
        """The hit's id."""
        return self.hit.id

    @property
    def last_rank(self) -> int | None:
        """The rank that the hit had last."""
        return next((place.rank for place in reversed(list(self.places.values()))), None)


@dataclass(frozen=True, slots=True)
class Flow:
    """All paths of one ranking: kept ones in their final order, then those left out."""

    columns: tuple[Column, ...]
    kept: tuple[Path, ...]
    cut: tuple[Path, ...]
    query: str = ""
    degraded: bool = False
    reason: str = ""
    failures: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)

    @property
    def pooled(self) -> tuple[Column, ...]:
        """The columns after the first-stage lists."""
        return tuple(column for column in self.columns if not column.first_stage)


def flow_of(ranking: Ranking, *, query: str = "") -> Flow:
    """Read a ranking's trace into a flow."""
    hits = (*ranking.hits, *ranking.cut)
    columns, places = _columns(ranking.trace, [hit.id for hit in hits])
    reasons = _cut_reasons(ranking.trace)
    words = why_all(ranking)
    decided = deciding_parts(ranking.trace, ranking.ids)
    kept = [
        Path(hit, places[hit.id], final, words[hit.id], decided=decided.get(hit.id, ""))
        for final, hit in enumerate(ranking.hits, start=1)
    ]
    cut = [Path(hit, places[hit.id], None, "", reasons.get(hit.id, "")) for hit in ranking.cut]
    if not columns or any(path.places.get(columns[-1].key, _NOWHERE).rank != path.final for path in kept):
        columns.append(Column("final", "final"))
        kept = [
            replace(path, places={**path.places, "final": Place(path.final or 0, path.hit.score)})
            for path in kept
        ]
    return Flow(
        tuple(columns),
        tuple(kept),
        tuple(cut),
        query=query,
        degraded=ranking.degraded,
        reason=ranking.reason or "",
        failures=dict(ranking.failures),
        timings=dict(ranking.timings),
    )


_NOWHERE = Place(0, None)


def _columns(trace: Trace, ids: Sequence[str]) -> tuple[list[Column], dict[str, dict[str, Place]]]:
    """Return a column per record that shows anything, and per id its place in each."""
    columns: list[Column] = []
    places: dict[str, dict[str, Place]] = {id: {} for id in ids}
    merged = {other: id for record in trace for other, id in record.merged.items()}
    lists = [record.source for record in trace.of(StageKind.RETRIEVE)]
    shown = [record for record in trace if record.kind is not StageKind.CUT]
    # Lists of the first stage stand side by side, so they come first even if one was asked later.
    shown.sort(key=lambda record: record.kind is not StageKind.RETRIEVE)
    before: StageRecord | None = None
    for number, record in enumerate(shown):
        first = record.kind is StageKind.RETRIEVE
        if not first and before is not None and _changed_nothing(before, record):
            columns[-1] = replace(columns[-1], label=f"{columns[-1].label}, {record.name}")
            continue
        before = None if first else record
        key = f"{number}"
        label = _short(record.source, lists) if first else record.name
        weighs = record.kind is StageKind.GUARD and bool(record.parts)
        columns.append(Column(key, label or "list", record.source, first, weighs))
        for id, at in record.places().items():
            step = record.step(at)
            own = places.get(merged.get(id, id) if first else id)
            if own is not None and not step.cut:
                own[key] = Place(step.rank, step.score, step.parts, step.note)
    return columns, places


def _changed_nothing(before: StageRecord, record: StageRecord) -> bool:
    """Whether a stage left every hit where the one before had it, without a word."""
    silent = not (record.source or record.parts or record.note or record.notes)
    return silent and record.kept is None and record.ids == before.order


def _short(name: str, lists: Sequence[str]) -> str:
    """Return a list's name; where all are views of one store, the store's name says nothing."""
    one_store = len(lists) > 1 and len({other.rpartition(".")[0] for other in lists}) == 1
    short = name.rpartition(".")[2] if one_store else name
    return short if [other.rpartition(".")[2] for other in lists].count(short) <= 1 else name


def _cut_reasons(trace: Trace) -> dict[str, str]:
    """Return id -> why it was left out, by the last stage that did so."""
    return {
        id: record.notes.get(id, record.note if record.kind is StageKind.CUT else "") or record.name
        for record in trace
        for id in record.left_out
    }
