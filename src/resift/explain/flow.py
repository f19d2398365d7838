"""Ledgers as columns and places: the model behind every picture. Pure functions on a ranking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from resift.types import CUT, Hit, Ranking, Step

RETRIEVE, FINAL = "retrieve", "final"


@dataclass(frozen=True, slots=True)
class Column:
    """One stage of the way; a first-stage list has a column of its own."""

    key: str
    label: str
    by: str = ""
    first_stage: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a hit stood in one column, with what its score was made of."""

    rank: int
    score: float | None
    parts: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Path:
    """One hit on its way: its place per column key, its final place (None if it was left out) and why."""

    hit: Hit
    places: Mapping[str, Place]
    final: int | None
    why: str
    cut: str = ""

    @property
    def id(self) -> str:
        """The hit's id."""
        return self.hit.id


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
    """Read a ranking's ledgers into a flow."""
    stages = [_stages(hit) for hit in (*ranking.hits, *ranking.cut)]
    order = _merged_order(list(stage) for stage in stages)
    kept = [
        _path(hit, places, ranking, final=at)
        for at, (hit, places) in enumerate(zip(ranking.hits, stages, strict=False), start=1)
    ]
    cut = [
        _path(hit, places, ranking, final=None)
        for hit, places in zip(ranking.cut, stages[len(ranking.hits) :], strict=True)
    ]
    columns = _columns(order, [*kept, *cut])
    if not columns or any(path.places.get(columns[-1].key, _NOWHERE).rank != path.final for path in kept):
        columns.append(Column(FINAL, FINAL))
        kept = [_finished(path) for path in kept]
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


def _stages(hit: Hit) -> dict[str, Place]:
    """Return column key -> place; several steps of one stage are parts, and the last is the total."""
    groups: dict[str, list[Step]] = {}
    for step in hit.ledger:
        if step.stage in (CUT, FINAL):
            continue
        key = f"{RETRIEVE}:{step.source}" if step.stage == RETRIEVE else step.stage
        groups.setdefault(key, []).append(step)
    return {key: _place(steps) for key, steps in groups.items()}


def _place(steps: Sequence[Step]) -> Place:
    total = steps[-1]
    parts = tuple(step for step in steps[:-1] if step.source) or ((total,) if total.source else ())
    notes = tuple(dict.fromkeys(step.note for step in steps if step.note))
    return Place(total.rank, total.score, parts, notes)


def _merged_order(paths: Iterable[list[str]]) -> list[str]:
    """Merge the orders in which hits met their stages into one; what is new goes behind its predecessor."""
    order: list[str] = []
    for keys in sorted(paths, key=len, reverse=True):
        at = 0
        for key in keys:
            if key in order:
                at = order.index(key) + 1
            else:
                order.insert(at, key)
                at += 1
    # Lists of the first stage stand side by side, so they come first even if one was met later.
    return sorted(order, key=lambda key: not key.startswith(f"{RETRIEVE}:"))


def _columns(order: Sequence[str], paths: Sequence[Path]) -> list[Column]:
    lists = [key.partition(":")[2] for key in order if key.startswith(f"{RETRIEVE}:")]
    one_store = len(lists) > 1 and len({name.rpartition(".")[0] for name in lists}) == 1
    shorts = [_short(key, cut=one_store) for key in order]
    columns: list[Column] = []
    for key, short in zip(order, shorts, strict=True):
        first = key.startswith(f"{RETRIEVE}:")
        full = key.partition(":")[2] if first else key
        label = short if shorts.count(short) == 1 else full
        if not first and columns and not columns[-1].first_stage and _same(columns[-1].key, key, paths):
            columns[-1] = Column(columns[-1].key, f"{columns[-1].label}, {label}", columns[-1].by)
            continue
        columns.append(Column(key, label or "list", full if first else _judge(key, paths), first))
    return columns


def _short(key: str, *, cut: bool) -> str:
    """Return a list's name; where all are views of one store, the store's name says nothing."""
    if not key.startswith(f"{RETRIEVE}:"):
        return key
    name = key.partition(":")[2]
    return name.rpartition(".")[2] if cut else name


def _same(before: str, key: str, paths: Sequence[Path]) -> bool:
    """Whether a stage changed nothing: no rank, no parts, no notes."""
    pairs = [(path.places.get(before), path.places.get(key)) for path in paths]
    return all(
        one is not None and other is not None and one.rank == other.rank and not (other.parts or other.notes)
        for one, other in pairs
        if one or other
    )


def _judge(key: str, paths: Sequence[Path]) -> str:
    """Return who decided in a stage, if it was one judge for all."""
    judges = {tuple(part.source for part in path.places[key].parts) for path in paths if key in path.places}
    judges.discard(())
    found = judges.pop() if len(judges) == 1 else ()
    return found[0] if len(found) == 1 else ""


def _path(hit: Hit, places: Mapping[str, Place], ranking: Ranking, *, final: int | None) -> Path:
    last = hit.ledger[-1] if len(hit.ledger) else None
    cut = "" if final or last is None else last.note or last.stage
    return Path(hit, places, final, ranking.why(hit.id) if final else "", cut)


def _finished(path: Path) -> Path:
    final = Place(path.final or 0, path.hit.score)
    return Path(path.hit, {**path.places, FINAL: final}, path.final, path.why)
