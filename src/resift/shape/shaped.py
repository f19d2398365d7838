"""What every shaping stage returns, and the one way they write ledgers and events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from resift.events import Event, Sink, emit
from resift.types import Hit


@dataclass(frozen=True, slots=True)
class Shaped:
    """Hits in their new order, hits left out, what had to be relaxed, and ids a later cut must spare."""

    kept: tuple[Hit, ...]
    cut: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()
    protected: frozenset[str] = frozenset()

    @property
    def ids(self) -> list[str]:
        """The ids of the kept hits in order."""
        return [hit.id for hit in self.kept]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeApplied(Event):
    """One shaping stage ran over one pool."""

    name: ClassVar[str] = "shape"
    stage: str
    candidates: int
    kept: int
    moved: int
    notes: tuple[str, ...] = ()


def told(stage: str, before: Sequence[Hit], shaped: Shaped, sink: Sink | None) -> Shaped:
    """Emit what the stage did, and hand its result through."""
    if sink is not None:
        moved = sum(old.id != new.id for old, new in zip(before, shaped.kept, strict=False))
        emit(
            sink,
            ShapeApplied(
                stage=stage,
                candidates=len(before),
                kept=len(shaped.kept),
                moved=moved,
                notes=shaped.notes,
            ),
        )
    return shaped
