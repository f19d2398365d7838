"""How often tightening applied: the number that tells whether the cliff rule is tuned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from resift.events import Event
from resift.ranking.gate.screening import VectorSearchToolResult


@dataclass(frozen=True, slots=True)
class ApplyRate:
    """One section's tightening: how many retrievals, how many tightened, and why the others were not.

    `rate` is the share that was tightened.
    """

    section: str
    retrievals: int
    applied: int
    rate: float
    dropped: int
    skip_reasons: Mapping[str, int]
    in_band: bool


def apply_rates(events: Iterable[Event], *, band: tuple[float, float] = (0.02, 0.40)) -> list[ApplyRate]:
    """Return one line per section, in name order; `in_band` is the target of 2–40 %."""
    sections: dict[str, list[VectorSearchToolResult]] = {}
    for event in events:
        if isinstance(event, VectorSearchToolResult):
            sections.setdefault(event.section or "default", []).append(event)
    return [_line(section, sections[section], band) for section in sorted(sections)]


def _line(section: str, events: list[VectorSearchToolResult], band: tuple[float, float]) -> ApplyRate:
    applied = sum(event.tighten_applied for event in events)
    rate = applied / len(events)
    reasons = Counter(event.tighten_skip_reason for event in events if event.tighten_skip_reason)
    return ApplyRate(
        section,
        retrievals=len(events),
        applied=applied,
        rate=rate,
        dropped=sum(event.tighten_dropped_count for event in events),
        skip_reasons=dict(sorted(reasons.items())),
        in_band=band[0] <= rate <= band[1],
    )
