"""The state machine of a circuit breaker. It has no lock and no clock: the time is an argument.

CLOSED ──failure_threshold failures in a row──▶ OPEN ──cooldown──▶ HALF_OPEN
   ▲                                             ▲                  │    │
   └────successful probes: success_threshold─────┼──────────────────┘    │
                                                 └──failed or lost probe─┘

`classify` decides whether an error counts against the provider.
"""

from __future__ import annotations

import enum
import math
import random as _random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

from resift import errors
from resift.errors import InputError
from resift.validation import option
from resift.validation.declared_types import as_float

# Limits of a pause that a provider requests. Longer pauses are probably a mistake.
HOLD_MIN_S = 1.0
HOLD_MAX_S = 300.0
AUTH_HOLD_S = 300.0  # a rejected API key is rejected until somebody changes it


class Outcome(enum.Enum):
    """SUCCESS and FAILURE change the counters, NEUTRAL changes nothing, HOLD opens the circuit at once."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"
    HOLD = "hold"


class Verdict(NamedTuple):
    """An outcome with its reason and the requested length of a hold; None means the breaker's cooldown."""

    outcome: Outcome
    reason: str = ""
    hold_s: float | None = None


NEUTRAL = Verdict(Outcome.NEUTRAL)

# Caller mistakes, missed deadlines and calls that were never made do not count against the provider.
_NEUTRAL_ERRORS = (
    errors.ProviderRejected,
    errors.CircuitOpenError,
    errors.DeadlineExceeded,
    errors.CostLimitExceeded,
    errors.InputError,
    errors.ConfigError,
)


def classify(error: BaseException) -> Verdict:
    """Return the verdict for an error; an unknown error is a failure."""
    if isinstance(error, BaseExceptionGroup):
        # The most severe error in the group decides.
        severity = (Outcome.HOLD, Outcome.FAILURE, Outcome.NEUTRAL)
        return min(map(classify, error.exceptions), key=lambda verdict: severity.index(verdict.outcome))
    # Other BaseExceptions mean that the caller cancelled, pressed Ctrl-C, or that the interpreter shuts down.
    if not isinstance(error, Exception) or isinstance(error, _NEUTRAL_ERRORS):
        return NEUTRAL
    if isinstance(error, errors.ProviderAuthError):
        return Verdict(Outcome.HOLD, "auth", AUTH_HOLD_S)
    if isinstance(error, errors.ProviderRateLimited) or (
        isinstance(error, errors.ProviderError) and error.status == 503 and error.retry_after_s is not None
    ):
        return Verdict(Outcome.HOLD, "rate_limited", error.retry_after_s)
    reasons: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
        (TimeoutError, "timeout"),
        ((errors.ProviderUnreachable, OSError), "unreachable"),
        (errors.ProviderServerError, "server_error"),
        (errors.ProviderBadAnswer, "bad_answer"),
    )
    reason = next((reason for kind, reason in reasons if isinstance(error, kind)), "error")
    return Verdict(Outcome.FAILURE, reason)


def require_seconds(name: str, value: float) -> float:
    """Return the value as a finite number of seconds, 0 or more; raises InputError for other values."""
    number = as_float(value)
    if not 0 <= number <= 1e15:
        raise InputError(f"{name} is {value!r}; pass a finite number of seconds, 0 or more.")
    return number


class State(enum.StrEnum):
    """The state of a circuit. Each value equals its name as a string."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


@dataclass(frozen=True)
class BreakerOptions:
    """Options of a breaker in a pipeline file."""

    failure_threshold: int = option("Number of consecutive failures that open the breaker.", default=3, min=1)
    cooldown_s: float = option("Seconds until the next probe.", default=60.0, gt=0)
    success_threshold: int = option("Number of consecutive successes that close the breaker again.", default=2, min=1)
    timeout_s: float = option("Maximum duration of a guarded call, in seconds.", default=30.0, gt=0)


@dataclass(frozen=True)
class Rules(BreakerOptions):
    """All settings of a circuit, validated."""

    jitter: float = 0.1
    max_cooldown_s: float = 600.0
    random: Callable[[], float] = _random.random

    def __post_init__(self) -> None:
        for name in ("failure_threshold", "success_threshold"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} is {value!r}; pass an integer ≥ 1.")
        for name in ("cooldown_s", "max_cooldown_s"):
            require_seconds(name, getattr(self, name))
        if require_seconds("timeout_s", self.timeout_s) == 0:
            raise InputError("timeout_s is 0; pass a number of seconds greater than 0.")
        if not 0 <= as_float(self.jitter) < 1:
            raise InputError(f"jitter is {self.jitter!r}; pass a fraction from 0 to less than 1, such as 0.1.")

    def cooldown_after(self, trips: int) -> float:
        """Return the cooldown after this many consecutive trips. It doubles each time, is capped, and has jitter."""
        ceiling = max(self.max_cooldown_s, self.cooldown_s)
        # The exponent is bounded, because 2.0 ** 1024 would overflow.
        seconds = min(ceiling, self.cooldown_s * 2.0 ** min(trips - 1, 64))
        # Jitter prevents many processes from probing a provider at the same moment.
        return min(ceiling, seconds * (1 + self.jitter * (2 * self.random() - 1)))

    def hold(self, seconds: float | None) -> float:
        """Return the length of a pause, clamped to 1–300 s; without a valid number, it is the cooldown."""
        if seconds is None or math.isnan(seconds):
            seconds = self.cooldown_s
        return min(max(seconds, HOLD_MIN_S), HOLD_MAX_S)


class Change(NamedTuple):
    """One transition between states."""

    from_state: str
    to_state: str
    reason: str
    open_for_s: float


class Circuit:
    """State, counters and probe. Every transition increments `generation`, which identifies old permits."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.generation = 0
        self.changes: list[Change] = []
        self.failures = self.successes = self.trips = 0
        self.probing = False
        self.lease_until_s = -math.inf
        self._reset(State.CLOSED, "")

    def tick(self, now_s: float) -> Self:
        """Apply the passage of time: a cooldown ends, a lost probe becomes a failure."""
        if self.state is State.HALF_OPEN and self.probing and now_s >= self.lease_until_s:
            # The cooldown starts at the end of the lease, not at the time of this call.
            self._trip(self.lease_until_s, "probe_lost")
        if self.state is State.OPEN and now_s >= self.until_s:
            self._move(State.HALF_OPEN, "cooldown_over")
        return self

    def admit(self, now_s: float, lease_s: float) -> int | None:
        """Return the generation of a new permit, or None if the call is rejected."""
        self.tick(now_s)
        if self.state is State.CLOSED:
            return self.generation
        if self.state is State.OPEN or self.probing:
            return None
        # The lease frees the probe if its caller dies without reporting.
        self.probing = True
        self.lease_until_s = now_s + lease_s
        return self.generation

    def report(self, generation: int, verdict: Verdict, now_s: float) -> bool:
        """Apply the verdict of a permit; return False if the permit is older than the current state."""
        self.tick(now_s)
        if generation != self.generation:
            return False
        self.probing = False
        if verdict.outcome is Outcome.SUCCESS:
            self.failures = 0
            if self.state is State.HALF_OPEN:
                self.successes += 1
                if self.successes >= self.rules.success_threshold:
                    self.close("recovered")
        elif verdict.outcome is Outcome.FAILURE:
            self.failures += 1
            if self.state is State.HALF_OPEN or self.failures >= self.rules.failure_threshold:
                self._trip(now_s, verdict.reason or "failure")
        elif verdict.outcome is Outcome.HOLD:
            self.open(now_s, self.rules.hold(verdict.hold_s), verdict.reason)
        return True

    def open(self, now_s: float, seconds: float, reason: str) -> None:
        """Open the circuit now, for this many seconds."""
        self._move(State.OPEN, reason, open_for_s=seconds)
        self.until_s = now_s + seconds

    def close(self, reason: str) -> None:
        """Close the circuit now and reset all counters."""
        self.trips = 0
        self._move(State.CLOSED, reason)

    def retry_in_s(self, now_s: float) -> float:
        """Return the seconds until the next probe is possible."""
        if self.state is State.CLOSED:
            return 0.0
        until = self.until_s if self.state is State.OPEN else self.lease_until_s if self.probing else now_s
        return max(0.0, until - now_s)

    def _trip(self, now_s: float, reason: str) -> None:
        self.trips += 1
        self.open(now_s, self.rules.cooldown_after(self.trips), reason)

    def _move(self, state: State, reason: str, *, open_for_s: float = 0.0) -> None:
        self.changes.append(Change(self.state.value, state.value, reason, open_for_s))
        self._reset(state, reason)

    def _reset(self, state: State, reason: str) -> None:
        # Trips are not reset: until the provider recovers, each further trip doubles the cooldown.
        self.generation += 1
        self.state = state
        self.reason = reason
        self.probing = False
        self.failures = self.successes = 0
        self.until_s = self.lease_until_s = -math.inf
