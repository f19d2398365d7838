"""The events of breaker and tiers, by the names operators know from the seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from resift.events import Event

SkipReason = Literal["circuit_breaker", "budget", "api_error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreakerChanged(Event):
    """A breaker moved from one state to another."""

    name: ClassVar[str] = "circuit_breaker_changed"
    breaker: str
    from_state: str
    to_state: str
    reason: str
    open_for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEncoderSkipped(Event):
    """A tier above the last one did not score the pool; `error` is the type of what it raised."""

    name: ClassVar[str] = "cross_encoder_skipped"
    provider: str
    reason: SkipReason
    candidates: int
    error: str | None
    remaining_ms: float | None
    latency_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEncoderSucceeded(Event):
    """A tier above the last one scored the pool, so the fallback skips itself."""

    name: ClassVar[str] = "cross_encoder_succeeded"
    provider: str
    candidates: int
    unscored: int
    latency_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackReranked(Event):
    """The last tier scored the pool; `degraded` is False where it is the only tier by choice."""

    name: ClassVar[str] = "fallback_reranked"
    provider: str
    candidates: int
    latency_ms: float
    degraded: bool
