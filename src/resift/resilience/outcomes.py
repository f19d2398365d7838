"""What a finished call says about the health of the provider: one table from errors to verdicts."""

from __future__ import annotations

import enum
import math
from typing import NamedTuple

from resift import errors

# A provider may name any pause: shorter than a second is none, longer than five minutes is a mistake.
HOLD_MIN_S = 1.0
HOLD_MAX_S = 300.0
# A refused key stays refused until somebody changes it.
AUTH_HOLD_S = 300.0


class Outcome(enum.Enum):
    """Success and failure move the counters, neutral moves nothing, hold opens at once for a given time."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"
    HOLD = "hold"


class Verdict(NamedTuple):
    """An outcome, why, and for a hold how long; None means the breaker's own cooldown."""

    outcome: Outcome
    reason: str = ""
    hold_s: float | None = None


SUCCESS = Verdict(Outcome.SUCCESS)
NEUTRAL = Verdict(Outcome.NEUTRAL)

# A caller's mistake, a lack of time or a call that was never made says nothing about the provider.
_NEUTRAL = (
    errors.ProviderRejected,
    errors.CircuitOpenError,
    errors.DeadlineExceeded,
    errors.InputError,
    errors.ConfigError,
)

# Of several errors in one call the one that says most about the provider.
_SEVERITY = (Outcome.HOLD, Outcome.FAILURE, Outcome.NEUTRAL)


def classify(error: BaseException) -> Verdict:
    """Return what this error means for the breaker; an error nobody knows is a failure."""
    if isinstance(error, BaseExceptionGroup):
        return min(map(classify, error.exceptions), key=lambda verdict: _SEVERITY.index(verdict.outcome))
    # Not an Exception: cancelled by the caller, Ctrl-C, or the interpreter going down.
    if not isinstance(error, Exception) or isinstance(error, _NEUTRAL):
        return NEUTRAL
    if isinstance(error, errors.ProviderAuthError):
        return Verdict(Outcome.HOLD, "auth", AUTH_HOLD_S)
    if isinstance(error, errors.ProviderError) and _asks_for_a_pause(error):
        return Verdict(Outcome.HOLD, "rate_limited", clamp_hold(error.retry_after_s))
    return Verdict(Outcome.FAILURE, _failure_reason(error))


def clamp_hold(seconds: float | None) -> float | None:
    """Return a pause between 1 and 300 s; None where the provider named none that makes sense."""
    if seconds is None or math.isnan(seconds):
        return None
    return min(max(seconds, HOLD_MIN_S), HOLD_MAX_S)


def _asks_for_a_pause(error: errors.ProviderError) -> bool:
    return isinstance(error, errors.ProviderRateLimited) or (
        error.status == 503 and error.retry_after_s is not None
    )


def _failure_reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, (errors.ProviderUnreachable, OSError)):
        return "unreachable"
    if isinstance(error, errors.ProviderServerError):
        return "server_error"
    return "bad_answer" if isinstance(error, errors.ProviderBadAnswer) else "error"
