"""What every shaping stage returns, and the one way they report what they did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resift.events import Event, Sink, emit
from resift.types import Hit, StageKind, StageRecord, record_of


@dataclass(frozen=True, slots=True)
class Shaped:
    """Hits in their new order, hits left out, what had to be relaxed, and ids a later cut must spare.

    `records` say what was done, for the trace.
    """

    kept: tuple[Hit, ...]
    cut: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()
    protected: frozenset[str] = frozenset()
    records: tuple[StageRecord, ...] = ()

    @property
    def ids(self) -> list[str]:
        """The ids of the kept hits in order."""
        return [hit.id for hit in self.kept]


class ShapeApplied(Event, name="shape"):
    """One shaping stage ran over one pool."""

    stage: str
    candidates: int
    kept: int
    moved: int
    notes: tuple[str, ...] = ()


def shaped(
    stage: str,
    before: Sequence[Hit],
    kept: Sequence[Hit],
    cut: Sequence[Hit] = (),
    *,
    kind: StageKind = StageKind.SHAPE,
    record: StageRecord | None = None,
    notes: tuple[str, ...] = (),
    by_id: Mapping[str, str] | None = None,
    protected: frozenset[str] = frozenset(),
    sink: Sink | None = None,
) -> Shaped:
    """Return what a stage made of the hits before it, with its record, and emit the event.

    `by_id` are notes for single hits. A stage that scores brings its own record.
    """
    done = record or record_of(kind, stage, kept, cut, notes=by_id)
    if sink is not None:
        moved = sum(old.id != new.id for old, new in zip(before, kept, strict=False))
        emit(
            sink,
            ShapeApplied(stage=stage, candidates=len(before), kept=len(kept), moved=moved, notes=notes),
        )
    return Shaped(tuple(kept), tuple(cut), notes, protected, (done,))
