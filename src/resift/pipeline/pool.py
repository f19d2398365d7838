"""Pool, the value that flows through the stages of a pipeline; the Stage protocol; and the stage contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from resift._internal.arrays import Vector
from resift.deadline import Deadline
from resift.errors import ResiftError
from resift.events import Sink
from resift.ranking.blend import Neighbors
from resift.ranking.context import Passage, PassageReader
from resift.types import Hit, Ranking, StageKind, StageRecord, Trace, Where, make_record
from resift.types.hit import same_text


# Frozen, because a stage that was abandoned at its deadline may still run and must not change later results.
@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The candidates of one search between two stages.

    `hits` is the current order, `cut` contains the dropped hits, `trace` has one record per stage, and `lists`
    contains the results per store in declared order. `k` is the requested number of hits. `section` is the part of a
    document that the search is for; gate and shape may have rules per section. `breaker_closed` tells whether the
    reranker is available. `vectors` maps ids to vectors, for semantic diversity. `neighbors` has the most similar
    candidates per id, if a store can provide them. `timings` are milliseconds per stage; all pools of a search share
    them. `reader` has the stores and the reranker that the stages `Context` and `Prune` use to create `passages`.
    """

    query: str
    k: int
    hits: tuple[Hit, ...] = ()
    cut: tuple[Hit, ...] = ()
    trace: Trace = field(default_factory=Trace)
    lists: Mapping[str, tuple[Hit, ...]] = field(default_factory=dict)
    where: Where | None = None
    section: str | None = None
    deadline: Deadline = field(default_factory=Deadline.never)
    sink: Sink | None = None
    breaker_closed: Callable[[], bool] | None = None
    reasons: tuple[str, ...] = ()
    tier: str | None = None
    unscored: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    notes: Mapping[str, object] = field(default_factory=dict)
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    neighbors: Neighbors = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    reader: PassageReader | None = None

    def __repr__(self) -> str:
        # Without query and documents: this appears in logs and tracebacks.
        return f"<Pool of {len(self.hits)} hits from {len(self.lists)} lists, k={self.k}>"

    @property
    def degraded(self) -> bool:
        """Whether a store or a stage failed, timed out or was skipped."""
        return bool(self.reasons)

    def degrade(self, reason: str) -> Pool:
        """Return a copy that is degraded for this reason."""
        return self if reason in self.reasons else replace(self, reasons=(*self.reasons, reason))

    def reorder(self, hits: Sequence[Hit], *records: StageRecord, cut: Sequence[Hit] = ()) -> Pool:
        """Return a copy with these hits in this order, and with additional dropped hits and records."""
        dropped = self.cut
        if dropped:
            # A stage may bring back dropped hits. A hit is never in both `hits` and `cut`.
            returned = {(hit.id, hit.source) for hit in hits}
            dropped = tuple([hit for hit in dropped if (hit.id, hit.source) not in returned])
        trace = Trace((*self.trace, *records)) if records else self.trace
        return replace(self, hits=tuple(hits), cut=(*dropped, *cut), trace=trace)

    def with_records(self, *records: StageRecord) -> Pool:
        """Return a copy with these records appended to the trace."""
        return replace(self, trace=self.trace.append(*records))

    def with_notes(self, **notes: object) -> Pool:
        """Return a copy with notes for later stages, such as a grade."""
        return replace(self, notes={**self.notes, **notes})

    def ranking(self) -> Ranking:
        """Return the result of the search."""
        return Ranking(
            self.hits,
            degraded=bool(self.reasons),
            reason="; ".join(self.reasons) or None,
            tier=self.tier,
            unscored=self.unscored,
            failures=dict(self.failures),
            timings=self.timings,
            cut=self.cut,
            trace=self.trace,
            query=self.query,
            warnings=self.warnings,
            passages=self.passages,
            reader=self.reader,
        )


@runtime_checkable
class Stage(Protocol):
    """One step of a pipeline: takes a pool and returns a pool. It must not lose, invent or change candidates.

    A stage may add its own record (`Pool.with_records`); otherwise the pipeline adds one. Optional attributes
    are `name` for timings and reasons, `kind` if it differs from the argument of the pipeline, `requires`
    for capabilities, and `uses_neighbors` if it needs `Pool.neighbors`.
    """

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool reordered, with fewer hits, or unchanged."""


def validate_stage_output(before: Pool, after: Pool, *, kind: StageKind, name: str) -> Pool:
    """Return the output of a third-party stage with its record in the trace and lost candidates in `cut`.

    Raises ResiftError if the stage invented, duplicated or changed hits, or shortened the trace.
    """
    if not isinstance(after, Pool):
        raise ResiftError(f"returned {type(after).__name__}, not a Pool")
    # This is fast: the records are the same objects, so their fields are not compared.
    if after.trace[: len(before.trace)] != before.trace:
        raise ResiftError("removed records from the trace")
    dropped = _lost_candidates(before, after)
    done = after.reorder(after.hits, cut=dropped) if dropped or after.cut else after
    # Query and limits come from the caller; a stage may only move candidates.
    return replace(
        _add_missing_record(before, done, dropped, kind=kind, name=name),
        query=before.query, k=before.k, lists=before.lists, where=before.where, section=before.section,
        deadline=before.deadline, sink=before.sink, breaker_closed=before.breaker_closed, timings=before.timings,
    )  # fmt: skip


def _lost_candidates(before: Pool, after: Pool) -> list[Hit]:
    """Return the candidates that are neither hits nor dropped hits of the result."""
    ordered = bool(before.hits or before.cut)
    # Before fusion, the candidates are in the lists of the stores.
    inputs = [*before.hits, *before.cut] if ordered else [hit for hits in before.lists.values() for hit in hits]
    # In the lists of different stores, the same id is the same candidate.
    by_source = ordered and len({hit.id for hit in inputs}) < len(inputs)
    candidates = _keys(inputs, by_source=by_source)
    known = dict(zip(reversed(candidates), reversed(inputs), strict=True))  # the first hit for each key
    if len(set(_keys(after.hits, by_source=True))) != len(after.hits):
        raise ResiftError("returned a hit twice")
    outputs = [*after.hits, *after.cut]
    keys = _keys(outputs, by_source=by_source)
    if not known.keys() >= set(keys):
        raise ResiftError("returned a hit that was not in its input")
    for key, hit in zip(keys, outputs, strict=True):
        # The texts are nearly always the same string object, which is fast to compare.
        if not same_text(hit, known[key]) and not any(
            same_text(hit, other) for other_key, other in zip(candidates, inputs, strict=True) if other_key == key
        ):
            raise ResiftError("changed the text of a hit")
    lost = known.keys() - set(keys)
    return [known[key] for key in dict.fromkeys(candidates) if key in lost] if lost else []


def _keys(hits: Iterable[Hit], *, by_source: bool) -> list[object]:
    return [(hit.id, hit.source) for hit in hits] if by_source else [hit.id for hit in hits]


def _add_missing_record(before: Pool, after: Pool, dropped: Sequence[Hit], *, kind: StageKind, name: str) -> Pool:
    """Return the pool with a record of the stage, unless the stage's own records describe the result."""
    own_records = after.trace[len(before.trace) :]
    order = tuple([hit.id for hit in after.hits])
    lost = [hit for hit in dropped if not any(hit.id in record.dropped for record in own_records)]
    old_scores = {(hit.id, hit.source): hit.score for hit in before.hits}
    rescored = not own_records and any(old_scores.get((hit.id, hit.source)) != hit.score for hit in after.hits)
    recorded_order = after.trace.order() if own_records else tuple([hit.id for hit in before.hits])
    if not lost and not rescored and order == recorded_order:
        return after
    merged = {other: id for record in own_records for other, id in record.merged.items()}
    notes = {hit.id: f"the same as {merged[hit.id]!r}" if hit.id in merged else f"dropped by {name}" for hit in lost}
    if own_records and order == recorded_order:
        # Add the hits that the stage's own record does not mention.
        last = own_records[-1]
        complete = replace(
            last,
            ids=(*last.ids, *(hit.id for hit in lost)),
            scores=(*last.scores, *(None for _ in lost)) if last.scores else (),
            kept=len(order),
            notes={**last.notes, **notes},
        )
        return replace(after, trace=Trace((*after.trace[:-1], complete)))
    return after.with_records(make_record(kind, name, after.hits, lost, scored=rescored, notes=notes))
