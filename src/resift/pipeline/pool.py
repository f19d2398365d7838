"""The value that flows through a pipeline's stages, the protocol of a stage, and the check of its output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypedDict, Unpack, runtime_checkable

from resift._internal.arrays import Vector
from resift.deadline import Deadline
from resift.errors import ResiftError
from resift.events import Sink
from resift.ranking.shape.neighbours import Near
from resift.types import Hit, JsonMapping, Ranking, StageKind, StageRecord, Trace, Where, record_of
from resift.types.hit import same_text


class PoolChanges(TypedDict, total=False):
    """Fields that a stage may change together with the order."""

    tier: str | None
    unscored: tuple[str, ...]
    reasons: tuple[str, ...]
    notes: JsonMapping


# Frozen: a stage that was left behind at its deadline may run on, and must not change what went on.
@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Candidates on their way, and everything that is known about them.

    `hits` is the order so far; `cut` what was left out; `trace` how both came about, a record per stage;
    `lists` the first-stage answers per store in declared order; `k` what the caller asked for in the end;
    `section` the part of a document that the search is for, by which gate and shape choose their rules;
    `breaker_closed` says whether the reranker that comes later can be trusted to answer;
    `vectors` maps ids to vectors where a stage has them, for diversity by meaning; `near` says which hits
    are alike where a store can tell.
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
    timings: Mapping[str, float] = field(default_factory=dict)
    notes: JsonMapping = field(default_factory=dict)
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    near: Near = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        # Neither the question nor documents: logs and tracebacks show this.
        return f"<Pool of {len(self.hits)} hits from {len(self.lists)} lists, k={self.k}>"

    @property
    def degraded(self) -> bool:
        """Whether anything did less than it was asked to."""
        return bool(self.reasons)

    def degrade(self, reason: str) -> Pool:
        """Return a copy that says what went wrong."""
        return self if reason in self.reasons else replace(self, reasons=(*self.reasons, reason))

    def reorder(
        self,
        hits: Sequence[Hit],
        *records: StageRecord,
        cut: Sequence[Hit] = (),
        **changes: Unpack[PoolChanges],
    ) -> Pool:
        """Return a copy with these hits in this order, these added to what was cut, and why in the trace."""
        still = self.cut
        if still:
            # A stage may bring back what an earlier one cut; a hit is never in both.
            back = {(hit.id, hit.source) for hit in hits}
            still = tuple([hit for hit in still if (hit.id, hit.source) not in back])
        trace = self.trace.then(*records) if records else self.trace
        return replace(self, hits=tuple(hits), cut=(*still, *cut), trace=trace, **changes)

    def recorded(self, *records: StageRecord) -> Pool:
        """Return a copy whose trace has these records at the end."""
        return replace(self, trace=self.trace.then(*records))

    def with_notes(self, **facts: object) -> Pool:
        """Return a copy that carries facts from one stage to later ones (a grade, a decision)."""
        return replace(self, notes={**self.notes, **facts})

    def with_timing(self, stage: str, ms: float, *, deadline: Deadline | None = None) -> Pool:
        """Return a copy with the time of a stage added, and this deadline if there is one."""
        # Added up: two stages may have one name.
        timings = {**self.timings, stage: self.timings.get(stage, 0.0) + ms}
        return replace(self, timings=timings, deadline=deadline or self.deadline)

    def ranking(self) -> Ranking:
        """Return what the caller gets."""
        return Ranking(
            self.hits,
            degraded=self.degraded,
            reason="; ".join(self.reasons) or None,
            tier=self.tier,
            unscored=self.unscored,
            failures=dict(self.failures),
            timings=dict(self.timings),
            cut=self.cut,
            trace=self.trace,
            query=self.query,
            warnings=self.warnings,
        )


@runtime_checkable
class Stage(Protocol):
    """One step of a pipeline: a pool in, a pool out, nothing lost, invented or changed.

    A stage may write its own record (`Pool.recorded`); where it writes none, the pipeline does. An optional
    attribute `name` names it in timings and reasons; `kind` is what it does, where that is not what it was
    passed as; `requires` lists capabilities.
    """

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool in another order, smaller, or as it was."""
        ...


@runtime_checkable
class AsksNeighbours(Protocol):
    """A stage that may want to know which candidates are alike before it runs."""

    @property
    def asks_neighbours(self) -> bool:
        """Whether it does."""
        ...


def validate_stage_output(before: Pool, after: Pool, *, kind: StageKind, name: str) -> Pool:
    """Return the stage's result with its record in the trace and what it dropped silently in `cut`.

    Raises ResiftError for hits that are not from the input, doubled, or changed, and for a shortened trace.
    """
    if not isinstance(after, Pool):
        raise ResiftError(f"returned {type(after).__name__}, not a Pool")
    # Cheap: the records are the same objects, which is seen before any field is compared.
    if after.trace[: len(before.trace)] != before.trace:
        raise ResiftError("removed records from the trace")
    dropped = _dropped(before, after)
    done = after.reorder(after.hits, cut=dropped) if dropped or after.cut else after
    # The question and the limits are the caller's; a stage only moves candidates.
    return replace(
        _recorded(before, done, dropped, kind=kind, name=name),
        query=before.query, k=before.k, lists=before.lists, where=before.where, section=before.section,
        deadline=before.deadline, sink=before.sink, breaker_closed=before.breaker_closed,
    )  # fmt: skip


def _dropped(before: Pool, after: Pool) -> list[Hit]:
    """Return the candidates that the result does not mention any more."""
    given = _given(before)
    # Before the first order a candidate is an id, of which stores may have several hits.
    first = not (before.hits or before.cut)
    by_source = not first and len({hit.id for hit in given}) < len(given)
    candidates = _keys(given, by_source=by_source)
    known = dict(zip(reversed(candidates), reversed(given), strict=True))  # of several the first
    if len(set(_keys(after.hits, by_source=True))) != len(after.hits):
        raise ResiftError("returned a hit twice")
    mentioned = [*after.hits, *after.cut]
    keys = _keys(mentioned, by_source=by_source)
    if not known.keys() >= set(keys):
        raise ResiftError("returned a hit that was not among its input")
    # Nearly always the very same string: that is seen without reading it.
    for key, hit in zip(keys, mentioned, strict=True):
        if not same_text(hit, known[key]) and not any(
            same_text(hit, other) for one, other in zip(candidates, given, strict=True) if one == key
        ):
            raise ResiftError("changed the text of a hit")
    gone = known.keys() - set(keys)
    return [known[key] for key in dict.fromkeys(candidates) if key in gone] if gone else []


def _keys(hits: Iterable[Hit], *, by_source: bool) -> list[object]:
    return [(hit.id, hit.source) for hit in hits] if by_source else [hit.id for hit in hits]


def _recorded(before: Pool, after: Pool, dropped: Sequence[Hit], *, kind: StageKind, name: str) -> Pool:
    """Return the pool with a record of what the stage did, unless its own records say all of it."""
    own = after.trace[len(before.trace) :]
    order = tuple([hit.id for hit in after.hits])
    lost = [hit for hit in dropped if not any(hit.id in record.left_out for record in own)]
    changed = not own and _rescored(before, after)
    before_order = after.trace.order() if own else tuple([hit.id for hit in before.hits])
    if not lost and not changed and order == before_order:
        return after
    merged = {other: id for record in own for other, id in record.merged.items()}
    notes = {
        hit.id: f"the same as {merged[hit.id]!r}" if hit.id in merged else f"dropped by {name}"
        for hit in lost
    }
    if own and order == before_order:
        # The stage's own record, with what it passed over in silence.
        last = own[-1]
        whole = replace(
            last,
            ids=(*last.ids, *(hit.id for hit in lost)),
            scores=(*last.scores, *(None for _ in lost)) if last.scores else (),
            kept=len(order),
            notes={**last.notes, **notes},
        )
        return replace(after, trace=Trace((*after.trace[:-1], whole)))
    return after.recorded(record_of(kind, name, after.hits, lost, scored=changed, notes=notes))


def _rescored(before: Pool, after: Pool) -> bool:
    old = {(hit.id, hit.source): hit.score for hit in before.hits}
    return any(old.get((hit.id, hit.source)) != hit.score for hit in after.hits)


def _given(pool: Pool) -> list[Hit]:
    if pool.hits or pool.cut:
        return [*pool.hits, *pool.cut]
    # Before the first order there are only the stores' lists.
    return [hit for hits in pool.lists.values() for hit in hits]
