"""The gate decides which candidates are passed to the reranker. Pure functions on hits; policies are data.

`gate` grades a retrieval (A–F). For a weak one (C, D, F), it lowers the floor and raises top-k. For a strong
one (A, B), it raises the floor to a cliff in the scores. `apply_rates` reports how often the floor was raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from resift.errors import InputError
from resift.events import Event, Sink, emit
from resift.ranking.gate import profiles
from resift.ranking.gate.profiles import MEMOSA, NEUTRAL, OWN_SCORE, Cliff, Grading, Profile, Relax, load_profile
from resift.types import Hit, StageKind, StageRecord, Trace, get_trace, make_record

__all__ = [
    "MEMOSA", "NEUTRAL", "OWN_SCORE", "ApplyRate", "Cliff", "Gated", "Grade", "Grading", "Hint", "Profile",
    "Relax", "VectorSearchToolResult", "apply_rates", "find_cliff", "gate", "grade", "load_profile",
    "profile_named",
]  # fmt: skip

profile_named = load_profile  # name of 0.2

BreakerClosed = Callable[[], bool]
"""Whether the reranker's breaker is CLOSED now; called before the search for a cliff and before it is applied."""

_GRADING = Grading()  # created once, because every construction validates its numbers


class VectorSearchToolResult(Event, name="vector_search_tool_result"):
    """The effect of the gate on one retrieval."""

    section: str | None
    profile: str
    grade: str
    grade_value: float
    candidates: int
    kept: int
    static_floor: float | None
    effective_floor: float | None
    relaxed: bool
    top_k: int | None
    tighten_applied: bool
    tighten_effective_floor: float | None
    tighten_cliff_position: int | None
    tighten_dropped_count: int
    tighten_skip_reason: str | None


@dataclass(frozen=True, slots=True)
class Gated:
    """Hits that passed the gate and hits that did not, in their original order, with event and trace record."""

    kept: tuple[Hit, ...]
    cut: tuple[Hit, ...]
    grade: Grade
    result: VectorSearchToolResult
    record: StageRecord


@dataclass(frozen=True, slots=True)
class Grade:
    """A letter, its numeric value, and the three parts of the value."""

    letter: profiles.Letter
    value: float
    coverage: float
    top: float
    spread: float

    @property
    def may_tighten(self) -> bool:
        """Whether the retrieval is good enough (A or B) that its tail may be dropped."""
        return self.letter in ("A", "B")


def grade(
    scores: Sequence[float], *, floor: float | None, wanted: int | None = None, policy: Grading | None = None
) -> Grade:
    """Grade a retrieval by its first-stage scores; an empty retrieval gets an F."""
    rules = policy or _GRADING
    if not scores:
        return Grade("F", 0.0, 0.0, 0.0, 0.0)
    best = max(scores)
    above = len(scores) if floor is None else sum(score >= floor for score in scores)
    coverage = min(1.0, above / max(1, wanted or rules.wanted))
    top = min(1.0, max(0.0, best / rules.full_top))
    spread = min(1.0, max(0.0, (best - min(scores)) / rules.full_spread))
    weights = rules.coverage_weight + rules.top_weight + rules.spread_weight
    parts = rules.coverage_weight * coverage + rules.top_weight * top + rules.spread_weight * spread
    value = parts / weights
    letter: profiles.Letter = next((letter for letter, lowest in rules.lowest if value >= lowest), "F")
    return Grade(letter, value, coverage, top, spread)


@dataclass(frozen=True, slots=True)
class Hint:
    """The floor that a cliff suggests, which is the lowest score above the cliff, or the reason for none.

    `position` is the number of scores above the cliff.
    """

    floor: float | None = None
    position: int | None = None
    skip_reason: str | None = None


def find_cliff(
    scores: Sequence[float] | None, *, floor: float | None, rerank_top_n: int | None, policy: Cliff | None = None
) -> Hint:
    """Return the first cliff after the top `rerank_top_n` scores, or the reason why no cliff was found.

    If the score after the cliff is below the static floor, the search ends, because all later scores are
    below the floor as well.
    """
    rules = policy or Cliff()
    if scores is None or floor is None or rerank_top_n is None:
        return Hint(skip_reason="missing_inputs")
    if len(scores) <= rerank_top_n:
        return Hint(skip_reason="no_room_above_core")
    descending = sorted(scores, reverse=True)
    # The core may end at the cliff: the first pair is the last score of the core and the next one.
    for i in range(max(rerank_top_n, 1) - 1, len(descending) - 1):
        if rules.between(descending[i], descending[i + 1]):
            if descending[i + 1] < floor:
                return Hint(position=i + 1, skip_reason="not_above_static_floor")
            return Hint(floor=descending[i], position=i + 1)
    return Hint(skip_reason="no_cliff")


def gate(
    hits: Sequence[Hit],
    *,
    trace: Trace | None = None,
    profile: Profile = NEUTRAL,
    section: str | None = None,
    rerank_top_n: int | None = None,
    top_k: int | None = None,
    breaker_closed: BreakerClosed | None = None,
    sink: Sink | None = None,
) -> Gated:
    """Keep at most `top_k` hits that reach the floor; relax a weak retrieval, tighten a strong one.

    Tightening never drops the best `rerank_top_n` hits. Without `breaker_closed`, the breaker counts as
    CLOSED. If the profile names a store, its scores are read from the trace, which a Ranking already has.
    """
    for name, count in (("rerank_top_n", rerank_top_n), ("top_k", top_k)):
        if count is not None and count < 1:
            raise InputError(f"{name} is {count}; pass a number of hits, 1 or more, or None.")
    signals = _read_signals(hits, profile.signal, get_trace(hits) if trace is None else trace)
    scores = [value for value in signals if value is not None]
    static = profile.floor_for(section)
    graded = grade(scores, floor=static, wanted=rerank_top_n, policy=profile.grading)
    hint = Hint(skip_reason="grade_not_a_or_b")
    if graded.may_tighten:
        is_closed = breaker_closed or (lambda: True)
        hint = _tighten(hits, signals, profile, floor=static, rerank_top_n=rerank_top_n, breaker_closed=is_closed)
    floor = profile.relax.floor_for(graded.letter, static)
    limit = profile.relax.top_k_for(graded.letter, top_k)
    kept: list[Hit] = []
    cut: list[Hit] = []
    reasons: dict[str, str] = {}
    for hit, value in zip(hits, signals, strict=True):
        reason = ""
        if value is not None and floor is not None and value < floor:
            reason = f"{value:.4g} is below the floor {floor:.4g}"
        elif value is not None and hint.floor is not None and value < hint.floor:
            reason = f"{value:.4g} is below the cliff at {hint.floor:.4g}"
        elif limit is not None and len(kept) >= limit:
            reason = f"top_k={limit}"
        if reason:
            cut.append(hit)
            reasons[hit.id] = reason
        else:
            kept.append(hit)
    effective = floor if hint.floor is None else hint.floor
    note = f"grade {graded.letter}" if effective is None else f"grade {graded.letter}, floor {effective:.4g}"
    # Hits below the static floor do not count as dropped by tightening.
    dropped = 0
    if hint.floor is not None:
        dropped = sum(value < hint.floor and (static is None or value >= static) for value in scores)
    result = VectorSearchToolResult(
        section=section,
        profile=profile.name,
        grade=graded.letter,
        grade_value=round(graded.value, 6),
        candidates=len(hits),
        kept=len(kept),
        static_floor=static,
        effective_floor=effective,
        relaxed=(floor, limit) != (static, top_k),
        top_k=limit,
        tighten_applied=hint.floor is not None,
        tighten_effective_floor=hint.floor,
        tighten_cliff_position=hint.position,
        tighten_dropped_count=dropped,
        tighten_skip_reason=hint.skip_reason,
    )
    emit(sink, result)
    record = make_record(StageKind.GATE, "gate", kept, cut, note=note, notes=reasons)
    return Gated(tuple(kept), tuple(cut), graded, result, record)


def _read_signals(hits: Sequence[Hit], signal: str, trace: Trace) -> list[float | None]:
    """Return the hits' own scores, or their scores from the named store."""
    if signal == OWN_SCORE:
        return [hit.score for hit in hits]
    store_scores: dict[str, float | None] = {}
    for record in trace.by_kind(StageKind.RETRIEVE):
        if record.source == signal:
            store_scores |= dict(zip(record.ids, record.scores, strict=True))
    return [store_scores.get(hit.id) for hit in hits]


def _tighten(
    hits: Sequence[Hit],
    signals: Sequence[float | None],
    profile: Profile,
    *,
    floor: float | None,
    rerank_top_n: int | None,
    breaker_closed: BreakerClosed,
) -> Hint:
    """Return the floor that the cliff suggests, or the reason why the floor does not change."""
    # Without a reranker, the first stage alone determines the order, and a smaller pool would only lose hits.
    if not breaker_closed():
        return Hint(skip_reason="breaker_not_closed")
    scores = [value for value in signals if value is not None]
    hint = find_cliff(scores, floor=floor, rerank_top_n=rerank_top_n, policy=profile.cliff)
    if hint.floor is None:
        return hint

    def source_types(lowest: float | None) -> list[str]:
        """Return the source type of each hit that reaches a floor."""
        return [
            str(hit.metadata.get(profile.source_type) or hit.source)
            for hit, value in zip(hits, signals, strict=True)
            if value is None or lowest is None or value >= lowest
        ]

    kept = source_types(hint.floor)
    skip_reason = None
    # A failure in another worker may have opened the breaker in the meantime.
    if not breaker_closed():
        skip_reason = "breaker_not_closed_at_apply"
    elif len(kept) < (rerank_top_n or 0):
        skip_reason = "pool_too_small"
    # Later stages cannot restore a source type that is lost here.
    elif set(source_types(floor)) - set(kept):
        skip_reason = "source_diversity_loss"
    return hint if skip_reason is None else Hint(position=hint.position, skip_reason=skip_reason)


@dataclass(frozen=True, slots=True)
class ApplyRate:
    """How often the floor was raised in a section (`rate`), and why it was not raised for the other retrievals."""

    section: str
    retrievals: int
    applied: int
    rate: float
    dropped: int
    skip_reasons: Mapping[str, int]
    in_band: bool


def apply_rates(events: Iterable[Event], *, band: tuple[float, float] = (0.02, 0.40)) -> list[ApplyRate]:
    """Return one rate per section, sorted by name; `in_band` tells whether it is within `band`."""
    sections: dict[str, list[VectorSearchToolResult]] = {}
    for event in events:
        if isinstance(event, VectorSearchToolResult):
            sections.setdefault(event.section or "default", []).append(event)
    rates = []
    for section, results in sorted(sections.items()):
        applied = sum(result.tighten_applied for result in results)
        rate = applied / len(results)
        reasons = Counter(result.tighten_skip_reason for result in results if result.tighten_skip_reason)
        rates.append(
            ApplyRate(
                section,
                retrievals=len(results),
                applied=applied,
                rate=rate,
                dropped=sum(result.tighten_dropped_count for result in results),
                skip_reasons=dict(sorted(reasons.items())),
                in_band=band[0] <= rate <= band[1],
            )
        )
    return rates
