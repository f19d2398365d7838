"""The events of breaker and tiers, by the names that operators know."""

from __future__ import annotations

from typing import Literal

from resift.events import Event, Scored

SkipReason = Literal["circuit_breaker", "budget", "api_error"]


class CircuitBreakerChanged(Event, name="circuit_breaker_changed"):
    """A breaker moved from one state to another."""

    breaker: str
    from_state: str
    to_state: str
    reason: str
    open_for_s: float


class CrossEncoderSkipped(Scored, name="cross_encoder_skipped"):
    """A tier above the last one did not score the pool; `error` is the type of what it raised."""

    reason: SkipReason
    error: str | None
    remaining_ms: float | None


class CrossEncoderSucceeded(Scored, name="cross_encoder_succeeded"):
    """A tier above the last one scored the pool, so the fallback skips itself."""

    unscored: int


class FallbackReranked(Scored, name="fallback_reranked"):
    """The last tier scored the pool; `degraded` is False where it is the only tier by choice."""

    degraded: bool
