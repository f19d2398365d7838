"""The trace: one record per stage with the resulting order of the hits, their scores, and the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property

from resift._internal.lazy_exports import warn_renamed
from resift.errors import InputError
from resift.types.hit import Hit, JsonMapping, JsonObject
from resift.types.scores import Languages, ScoreScale
from resift.validation import convert, type_name


class StageKind(StrEnum):
    """The kind of a stage. Code looks up records by kind; names are for display only."""

    RETRIEVE = "retrieve"
    FUSE = "fuse"
    GATE = "gate"
    RERANK = "rerank"
    GUARD = "guard"
    SHAPE = "shape"
    CUT = "cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    """Result of one stage. The rank of an id is its position in `ids`, counted from 1.

    `scores` are parallel to `ids`; they are empty if the stage only moved hits. `parts` contains the terms of the
    scores: part -> id -> value. The first `kept` ids were kept (None: all of them), the others were dropped. `notes`
    apply to single ids, and `note` applies to all others. `merged` maps an id to the id that replaced it. `weights`
    are the weights of the lists or the reranker, and `evidence` contains the text properties that determined them.
    `retrieval_mode` is how a store retrieved its list: lexical, dense, graph or hybrid. `score_scale` and `languages`
    describe the scorer of a rerank stage (`ScorerInfo`); they are None for other stages.
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
    retrieval_mode: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)
    evidence: Mapping[str, float] = field(default_factory=dict)
    score_scale: ScoreScale | None = None
    languages: Languages | None = None

    @property
    def order(self) -> tuple[str, ...]:
        """The kept ids, best first."""
        return self.ids if self.kept is None else self.ids[: self.kept]

    @property
    def dropped(self) -> tuple[str, ...]:
        """The ids that this stage dropped."""
        return () if self.kept is None else self.ids[self.kept :]

    def positions(self) -> dict[str, int]:
        """Return a mapping from id to position, counted from 0; of an id that is listed twice, the better one."""
        # Iterate backwards, so that the better position is written last.
        return {self.ids[i]: i for i in range(len(self.ids) - 1, -1, -1)}

    @property
    def left_out(self) -> tuple[str, ...]:
        """The ids that this stage dropped; deprecated, use `dropped`."""
        warn_renamed("StageRecord.left_out", "dropped")
        return self.dropped

    def places(self) -> dict[str, int]:
        """Return a mapping from id to position, counted from 0; deprecated, use `positions`."""
        warn_renamed("StageRecord.places", "positions")
        return self.positions()

    @property
    def searched(self) -> str:
        """The retrieval mode under its name in 0.2, "doc" or "vector"; deprecated, use `retrieval_mode`."""
        warn_renamed("StageRecord.searched", "retrieval_mode")
        return {"lexical": "doc", "dense": "vector"}.get(self.retrieval_mode, self.retrieval_mode)

    def step(self, position: int) -> Step:
        """Return the step of the hit at a position, counted from 0."""
        id = self.ids[position]
        return Step(
            kind=self.kind,
            name=self.name,
            source=self.source,
            rank=position + 1,
            score=self.scores[position] if self.scores else None,
            note=self.notes.get(id, self.note),
            parts=tuple((name, column[id]) for name, column in self.parts.items() if id in column),
            cut=self.kept is not None and position >= self.kept,
            retrieval_mode=self.retrieval_mode,
        )

    def to_dict(self) -> JsonObject:
        """Return plain data; `from_dict` turns it back into an equal record."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        data: JsonObject = {name: value for name, value in values.items() if name in _REQUIRED or value not in _EMPTY}
        for name in ("ids", "scores", "languages"):
            if isinstance(data.get(name), tuple):
                data[name] = list(data[name])
        if self.parts:
            data["parts"] = {name: dict(column) for name, column in self.parts.items()}
        return {**data, "kind": self.kind.value}

    @classmethod
    def from_dict(cls, data: JsonMapping) -> StageRecord:
        """Return the record for the output of `to_dict`; raises InputError for anything else."""
        from resift.types.stored import StageRecordData

        if isinstance(data, Mapping) and "searched" in data:  # written by Resift 0.2
            mode = data["searched"]
            data = {**data, "retrieval_mode": RETRIEVAL_MODES.get(mode, mode)}
        stored = convert(data, StageRecordData, name="a stage of the trace")
        values = {field.name: getattr(stored, field.name) for field in fields(cls)}
        values["evidence"] = {_RENAMED_EVIDENCE.get(key, key): value for key, value in stored.evidence.items()}
        record = cls(**values)
        if record.scores and len(record.scores) != len(record.ids):
            raise InputError(
                f"A stage of the trace has {len(record.scores)} scores for {len(record.ids)} ids; "
                "pass one score per id, or none."
            )
        return record


RETRIEVAL_MODES = {"doc": "lexical", "text": "lexical", "vector": "dense"}
"""Kind of store -> retrieval mode. For other kinds, the mode has the same name."""

_REQUIRED = ("kind", "name", "ids")
_RENAMED_EVIDENCE = {"marks of code per word": "code_density", "letters per word": "mean_word_length"}  # 0.2
_EMPTY: tuple[object, ...] = (None, "", (), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A hit in one stage: its rank, its score (None: unscored), a note, and the parts of the score.

    `cut` means that the stage dropped the hit; `rank` is then the rank before the stage.
    """

    kind: StageKind
    name: str
    source: str
    rank: int
    score: float | None
    note: str = ""
    parts: tuple[tuple[str, float], ...] = ()
    cut: bool = False
    retrieval_mode: str = ""


class Trace(tuple[StageRecord, ...]):
    """The records of all stages, in execution order."""

    __slots__ = ()

    @classmethod
    def from_dict(cls, data: object) -> Trace:
        """Return the trace for a list of records as plain data; raises InputError for anything else."""
        if not isinstance(data, (list, tuple)):
            raise InputError(f"trace is {type_name(data)}; it must be a list.")
        return cls(map(StageRecord.from_dict, data))

    def append(self, *records: StageRecord) -> Trace:
        """Return a trace with these records at the end."""
        return Trace((*self, *records))

    def by_kind(self, kind: StageKind) -> tuple[StageRecord, ...]:
        """Return the records of one kind."""
        return tuple([record for record in self if record.kind is kind])

    def then(self, *records: StageRecord) -> Trace:
        """Return a trace with these records at the end; deprecated, use `append`."""
        warn_renamed("Trace.then", "append")
        return self.append(*records)

    def of(self, kind: StageKind) -> tuple[StageRecord, ...]:
        """Return the records of one kind; deprecated, use `by_kind`."""
        warn_renamed("Trace.of", "by_kind")
        return self.by_kind(kind)

    def order(self) -> tuple[str, ...]:
        """Return the final order of the ids, according to the records."""
        # The list of a single store does not order all candidates.
        ordered = [record for record in self if record.kind is not StageKind.RETRIEVE]
        if ordered:
            return ordered[-1].order
        # Several lists have no common order before they are fused.
        return self[0].order if len(self) == 1 else ()

    def path(self, id: str) -> tuple[Step, ...]:
        """Return the steps of a hit, in order; a cut that kept the hit is not a step."""
        return self.paths((id,))[id]

    def paths(self, ids: Iterable[str]) -> dict[str, tuple[Step, ...]]:
        """Return the path of each of these hits; every record is read once."""
        paths: dict[str, list[Step]] = {id: [] for id in ids}
        # The steps of a merged hit belong to the hit that it was merged into.
        targets = {other: kept for record in self for other, kept in record.merged.items()}
        targets |= {id: id for id in paths}
        for record in self:
            seen: set[str] = set()
            for i, listed in enumerate(record.ids):
                id = targets.get(listed)
                # If a hit is listed twice, its better position counts.
                if id is None or id not in paths or id in seen:
                    continue
                seen.add(id)
                step, before = record.step(i), paths[id]
                if step.cut:
                    # Use its previous rank: from the last order, or from the only list that contains it.
                    orders = [each for each in before if each.kind is not StageKind.RETRIEVE]
                    last = orders[-1] if orders else before[0] if len(before) == 1 else step
                    paths[id].append(replace(step, rank=last.rank))
                elif record.kind is not StageKind.CUT:
                    paths[id].append(step)
        return {id: tuple(steps) for id, steps in paths.items()}


@dataclass(eq=False, repr=False)
class LazyParts(Mapping[str, Mapping[str, float]]):
    """Parts of scores that are computed on first use, because few searches are explained."""

    _compute: Callable[[], Mapping[str, Mapping[str, float]]]

    @cached_property
    def _parts(self) -> Mapping[str, Mapping[str, float]]:
        return self._compute()

    def __getitem__(self, name: str) -> Mapping[str, float]:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __repr__(self) -> str:
        return repr(self._parts)

    def __reduce__(self) -> tuple[type, tuple[Mapping[str, Mapping[str, float]]]]:
        return dict, (self._parts,)


class FusedHits(list[Hit]):
    """A list of hits in their new order, with the records of the fusion in `records`."""

    __slots__ = ("records",)

    def __init__(self, hits: Iterable[Hit] = (), *records: StageRecord) -> None:
        super().__init__(hits)
        self.records = records


def make_record(
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
    """Return the record of a stage with this result; `scored` means that the stage changed the scores."""
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
    """Return the record of a cut to the first k ids, or nothing if there are at most k."""
    if k >= len(ids):
        return ()
    return (StageRecord(kind=StageKind.CUT, name="cut", ids=tuple(ids), kept=k, note=note or f"k={k}"),)
