"""The gate itself: grade, relax or tighten, then split a pool into what goes on and what does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from resift.errors import InputError
from resift.events import Event, Sink, emit
from resift.ranking.gate.cliff import Hint, find_cliff
from resift.ranking.gate.grading import Grade, grade
from resift.ranking.gate.profiles import NEUTRAL, Profile
from resift.types import Hit, StageKind, StageRecord, Trace, record_of, trace_of

STAGE = "gate"

BreakerClosed = Callable[[], bool]
"""Says whether the reranker's breaker is CLOSED right now; asked once for the hint, once at apply time."""


class VectorSearchToolResult(Event, name="vector_search_tool_result"):
    """What the gate did to one retrieval."""

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
    """What goes on, what does not, the numbers behind it, and the record for the trace."""

    kept: tuple[Hit, ...]
    cut: tuple[Hit, ...]
    grade: Grade
    result: VectorSearchToolResult
    record: StageRecord


@dataclass(frozen=True, slots=True)
class _Pool:
    """One retrieval with everything the gate goes by."""

    hits: Sequence[Hit]
    signals: list[float | None]
    scores: list[float]
    profile: Profile
    static: float | None
    rerank_top_n: int | None
    closed: BreakerClosed

    def type_of(self, at: int) -> str:
        hit = self.hits[at]
        return str(hit.metadata.get(self.profile.source_type) or hit.source)


@dataclass(frozen=True, slots=True)
class _Limits:
    """Where the pool is cut: floor, the tightened floor if there is one, and top-k."""

    floor: float | None
    tight: float | None
    top_k: int | None


@dataclass(frozen=True, slots=True)
class _Tightened:
    floor: float | None = None
    position: int | None = None
    dropped: int = 0
    skip_reason: str | None = None


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
    """Keep what clears the floor, at most `top_k`; relax for a weak retrieval, tighten for a strong one.

    `rerank_top_n` is how many hits the reranker will keep: the must-have core that tightening spares.
    Without `breaker_closed` the breaker counts as CLOSED. A ranking brings its own trace, in which the scores
    of the store that the profile names are looked up.
    """
    _check(rerank_top_n, top_k)
    # The store's own scores where the profile says so: fused ones have no scale a floor could mean.
    signals = signals_of(hits, profile.signal, trace_of(hits) if trace is None else trace)
    scores = [value for value in signals if value is not None]
    static = profile.floor_for(section)
    pool = _Pool(hits, signals, scores, profile, static, rerank_top_n, breaker_closed or _always)
    graded = grade(scores, floor=static, wanted=rerank_top_n, policy=profile.grading)
    tight = _tighten(pool, graded)
    relax = profile.relax
    limits = _Limits(
        relax.floor_for(graded.letter, static), tight.floor, relax.top_k_for(graded.letter, top_k)
    )
    kept, cut, record = _split(pool, limits, graded.letter)
    result = VectorSearchToolResult(
        section=section,
        profile=profile.name,
        grade=graded.letter,
        grade_value=round(graded.value, 6),
        candidates=len(hits),
        kept=len(kept),
        static_floor=static,
        effective_floor=limits.floor if tight.floor is None else tight.floor,
        relaxed=(limits.floor, limits.top_k) != (static, top_k),
        top_k=limits.top_k,
        tighten_applied=tight.floor is not None,
        tighten_effective_floor=tight.floor,
        tighten_cliff_position=tight.position,
        tighten_dropped_count=tight.dropped,
        tighten_skip_reason=tight.skip_reason,
    )
    emit(sink, result)
    return Gated(kept, cut, graded, result, record)


def signals_of(hits: Sequence[Hit], signal: str, trace: Trace) -> list[float | None]:
    """Return the scores the gate goes by: the hits' own, or those that the named store gave."""
    if signal == "score":
        return [hit.score for hit in hits]
    known: dict[str, float | None] = {}
    for record in trace.of(StageKind.RETRIEVE):
        if record.source == signal:
            known |= dict(zip(record.ids, record.scores, strict=True))
    return [known.get(hit.id) for hit in hits]


def _tighten(pool: _Pool, graded: Grade) -> _Tightened:
    hint = _hint(pool, graded)
    why_not = hint.skip_reason if hint.floor is None else _refused(pool, hint.floor)
    if hint.floor is None or why_not:
        return _Tightened(position=hint.position, skip_reason=why_not)
    # Only what the static floor would have let through was dropped by tightening.
    dropped = sum(
        value < hint.floor and (pool.static is None or value >= pool.static) for value in pool.scores
    )
    return _Tightened(hint.floor, hint.position, dropped)


def _hint(pool: _Pool, graded: Grade) -> Hint:
    if not graded.may_tighten:
        return Hint(skip_reason="grade_not_a_or_b")
    # With its reranker down the first stage decides alone: a smaller pool would only lose hits.
    if not pool.closed():
        return Hint(skip_reason="breaker_not_closed")
    return find_cliff(
        pool.scores, floor=pool.static, rerank_top_n=pool.rerank_top_n, policy=pool.profile.cliff
    )


def _refused(pool: _Pool, floor: float) -> str | None:
    """Return why a tighten must not be applied after all, or None."""
    # Another worker's failure may have opened the breaker since the hint was computed.
    if not pool.closed():
        return "breaker_not_closed_at_apply"
    before = [
        at
        for at, value in enumerate(pool.signals)
        if value is None or pool.static is None or value >= pool.static
    ]
    after = [at for at, value in enumerate(pool.signals) if value is None or value >= floor]
    if len(after) < (pool.rerank_top_n or 0):
        return "pool_too_small"
    # A kind of source that vanishes cannot be brought back by any later stage.
    lost = {pool.type_of(at) for at in before} - {pool.type_of(at) for at in after}
    return "source_diversity_loss" if lost else None


def _split(pool: _Pool, limits: _Limits, letter: str) -> tuple[tuple[Hit, ...], tuple[Hit, ...], StageRecord]:
    kept: list[Hit] = []
    cut: list[Hit] = []
    reasons: dict[str, str] = {}
    for hit, value in zip(pool.hits, pool.signals, strict=True):
        reason = _why_cut(value, limits, len(kept))
        if reason:
            cut.append(hit)
            reasons[hit.id] = reason
        else:
            kept.append(hit)
    effective = limits.floor if limits.tight is None else limits.tight
    note = f"grade {letter}" if effective is None else f"grade {letter}, floor {effective:.4g}"
    record = record_of(StageKind.GATE, STAGE, kept, cut, note=note, notes=reasons)
    return tuple(kept), tuple(cut), record


def _why_cut(value: float | None, limits: _Limits, kept: int) -> str:
    if value is not None:
        if limits.floor is not None and value < limits.floor:
            return f"{value:.4g} is under the floor {limits.floor:.4g}"
        if limits.tight is not None and value < limits.tight:
            return f"{value:.4g} is past the cliff at {limits.tight:.4g}"
    return f"top_k={limits.top_k}" if limits.top_k is not None and kept >= limits.top_k else ""


def _always() -> bool:
    return True


def _check(rerank_top_n: int | None, top_k: int | None) -> None:
    for name, value in (("rerank_top_n", rerank_top_n), ("top_k", top_k)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; pass a number of hits ≥ 1, or None.")
