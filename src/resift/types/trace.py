"""The trace: one record per stage says what came out of it, in which order, by which scores, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

from resift.errors import InputError
from resift.types.hit import Hit
from resift.types.json_values import JsonMapping, JsonObject
from resift.types.scores import Languages, ScoreScale
from resift.validation import convert


class StageKind(StrEnum):
    """What a stage does. Evidence is looked up by kind; a display name is for people only."""

    RETRIEVE = "retrieve"
    FUSE = "fuse"
    GATE = "gate"
    RERANK = "rerank"
    GUARD = "guard"
    SHAPE = "shape"
    CUT = "cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    """What one stage did. The rank of an id is its place in `ids`, from 1.

    `scores` stand beside `ids`; without any the stage only moved hits. `parts` are what totals are made of:
    part -> id -> value. The first `kept` ids went on (None: all of them), the others were left out here.
    `notes` are for single ids, `note` is for all that have none. `merged` maps an id that came in to the id
    that stands for it from here on. `weights` say how much each side counted and `evidence` what that was
    decided by; `searched` is how a store looked for its list: doc (words), vector, graph, hybrid.
    `score_scale` and `languages` describe the scorer of a rerank stage (`ScorerInfo`); None for other stages.
    """

    kind: StageKind
    name: str
    ids: tuple[str, ...]
    scores: tuple[float | None, ...] = ()
    source: str = ""
    kept: int | None = None
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    note: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    merged: Mapping[str, str] = field(default_factory=dict)
    searched: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)
    evidence: Mapping[str, float] = field(default_factory=dict)
    score_scale: ScoreScale | None = None
    languages: Languages | None = None

    @property
    def order(self) -> tuple[str, ...]:
        """The ids that went on, best first."""
        return self.ids if self.kept is None else self.ids[: self.kept]

    @property
    def left_out(self) -> tuple[str, ...]:
        """The ids that this stage cut."""
        return () if self.kept is None else self.ids[self.kept :]

    def places(self) -> dict[str, int]:
        """Return id -> place in the columns, from 0; of an id that is listed twice the better one."""
        # From the end, so that the better place is written last.
        return {self.ids[at]: at for at in range(len(self.ids) - 1, -1, -1)}

    def step(self, at: int) -> Step:
        """Return what the record says of the id at a place, from 0."""
        id = self.ids[at]
        parts = tuple((name, column[id]) for name, column in self.parts.items() if id in column)
        return Step(
            kind=self.kind,
            name=self.name,
            source=self.source,
            rank=at + 1,
            score=self.scores[at] if self.scores else None,
            note=self.notes.get(id, self.note),
            parts=parts,
            cut=self.kept is not None and at >= self.kept,
            searched=self.searched,
        )

    def to_dict(self) -> JsonObject:
        """Return plain data that `from_dict` turns back into an equal record."""
        data = {one.name: getattr(self, one.name) for one in fields(self)}
        given = {name: value for name, value in data.items() if name in _ALWAYS or value not in _EMPTY}
        for name in ("ids", "scores", "languages"):
            if isinstance(given.get(name), tuple):
                given[name] = list(given[name])
        if self.parts:
            given["parts"] = {name: dict(column) for name, column in self.parts.items()}
        return {**given, "kind": self.kind.value}

    @classmethod
    def from_dict(cls, data: JsonMapping) -> StageRecord:
        """Return the record that `to_dict` described; raises InputError for anything else."""
        from resift.types.stored import StageRecordData

        stored = convert(data, StageRecordData, name="a stage of the trace")
        values = {field.name: getattr(stored, field.name) for field in fields(cls)}
        for name in ("ids", "scores", "languages"):
            if isinstance(values[name], list):
                values[name] = tuple(values[name])
        values["evidence"] = {_RENAMED.get(key, key): value for key, value in stored.evidence.items()}
        record = cls(**values)
        if record.scores and len(record.scores) != len(record.ids):
            raise InputError(
                f"A stage of the trace has {len(record.scores)} scores for {len(record.ids)} ids; "
                "give one each, or none."
            )
        return record


_ALWAYS = ("kind", "name", "ids")
_RENAMED = {"marks of code per word": "code_density", "letters per word": "mean_word_length"}  # since 0.2
_EMPTY: tuple[object, ...] = (None, "", (), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One hit in one stage: its rank, its score there (None: not judged), a note, and its score's parts.

    `cut` means that the stage dropped the hit; the rank is then the one it had before. `searched` is how the
    list of a store was made: doc (keywords), vector, graph, hybrid.
    """

    kind: StageKind
    name: str
    source: str
    rank: int
    score: float | None
    note: str = ""
    parts: tuple[tuple[str, float], ...] = ()
    cut: bool = False
    searched: str = ""


class Trace(tuple[StageRecord, ...]):
    """The records of all stages, in the order in which they ran."""

    __slots__ = ()

    @classmethod
    def from_dict(cls, data: object) -> Trace:
        """Return the trace of these records as plain data; raises InputError for anything else."""
        if not isinstance(data, (list, tuple)):
            raise InputError(f"trace is a {type(data).__name__}; it must be a list.")
        return cls(map(StageRecord.from_dict, data))

    def then(self, *records: StageRecord) -> Trace:
        """Return a trace with these records at the end."""
        return Trace((*self, *records))

    def of(self, kind: StageKind) -> tuple[StageRecord, ...]:
        """Return the records of one kind, whatever their stages are called."""
        return tuple(record for record in self if record.kind is kind)

    def order(self) -> tuple[str, ...]:
        """Return the ids in the order that the records alone give."""
        # A store's list is evidence, not an order of the whole.
        ordered = [record for record in self if record.kind is not StageKind.RETRIEVE]
        if ordered:
            return ordered[-1].order
        # One list is an order; several lists are none before they are fused.
        return self[0].order if len(self) == 1 else ()

    def path(self, id: str) -> tuple[Step, ...]:
        """Return the steps of one hit, in order; a cut that it survived is no step."""
        return self.paths((id,))[id]

    def paths(self, ids: Iterable[str]) -> dict[str, tuple[Step, ...]]:
        """Return the path of each of these hits, reading every record once."""
        steps: dict[str, list[Step]] = {id: [] for id in ids}
        # Steps of a hit that was merged into another belong to the one that stands for both.
        known = {other: kept for record in self for other, kept in record.merged.items()}
        known |= {id: id for id in steps}
        for record in self:
            met: set[str] = set()
            for at, one in enumerate(record.ids):
                id = known.get(one)
                # Of a hit that is listed twice the better place counts.
                if id is not None and id in steps and id not in met:
                    met.add(id)
                    _add(steps[id], record, at)
        return {id: tuple(found) for id, found in steps.items()}


def _add(steps: list[Step], record: StageRecord, at: int) -> None:
    step = record.step(at)
    if step.cut:
        steps.append(_cut_from(step, steps))
    elif record.kind is not StageKind.CUT:
        steps.append(step)


def _cut_from(step: Step, before: Sequence[Step]) -> Step:
    """Return the step of a hit that was left out, with the rank it had when it was."""
    last = next((one for one in reversed(before) if one.kind is not StageKind.RETRIEVE), None)
    # Cut before any fusion: the one list that held it is where it stood.
    if last is None and len(before) == 1:
        last = before[0]
    return step if last is None else replace(step, rank=last.rank)


class Fused(list[Hit]):
    """Hits in their new order, with the records of how they got it: what the rerankers of Resift return.

    To everybody who does not ask for `records` it is a plain list.
    """

    __slots__ = ("records",)

    def __init__(self, hits: Iterable[Hit] = (), *records: StageRecord) -> None:
        super().__init__(hits)
        self.records = records


def record_of(
    kind: StageKind,
    name: str,
    kept: Sequence[Hit],
    cut: Sequence[Hit] = (),
    *,
    scored: bool = False,
    source: str = "",
    note: str = "",
    notes: Mapping[str, str] | None = None,
) -> StageRecord:
    """Return the record of a stage that left these hits in this order; `scored`: it judged them."""
    hits = [*kept, *cut] if cut else kept
    return StageRecord(
        kind=kind,
        name=name,
        ids=tuple([hit.id for hit in hits]),
        scores=tuple([hit.score for hit in hits]) if scored else (),
        source=source,
        kept=len(kept) if cut else None,
        note=note,
        notes=notes or {},
    )


def cut_record(ids: Sequence[str], k: int, *, note: str = "") -> tuple[StageRecord, ...]:
    """Return the record of a cut to the first k, or nothing where k leaves nothing out."""
    if k >= len(ids):
        return ()
    return (StageRecord(kind=StageKind.CUT, name="cut", ids=tuple(ids), kept=k, note=note or f"k={k}"),)
