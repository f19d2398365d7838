"""The value that flows through a pipeline's stages, and the shape of a stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypedDict, Unpack, runtime_checkable

from resift.arrays import Vector
from resift.deadline import Deadline
from resift.events import Sink
from resift.shape.neighbours import Near
from resift.types import Hit, JsonMapping, Ranking, StageRecord, Trace, Where


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
