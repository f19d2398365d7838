"""The breaker's rules as a plain state machine: no lock, no clock, no I/O; the time is an argument.

CLOSED ──failure_threshold failures in a row──▶ OPEN ──cooldown──▶ HALF_OPEN
   ▲                                             ▲                  │    │
   └────────success_threshold good probes────────┼──────────────────┘    │
                                                 └──one bad or lost probe┘
"""

from __future__ import annotations

import enum
import math
import random as _random
from collections.abc import Callable
from dataclasses import dataclass

from resift.errors import InputError
from resift.resilience.outcomes import HOLD_MAX_S, HOLD_MIN_S, Outcome, Verdict
from resift.validation import option


class State(enum.StrEnum):
    """Where a circuit is; equal to its name as a string."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


@dataclass(frozen=True)
class BreakerOptions:
    """What a pipeline file can say of a breaker."""

    failure_threshold: int = option("Failures in a row that open it.", default=3, min=1)
    cooldown_s: float = option("Seconds until it is tried again.", default=60.0, gt=0)
    success_threshold: int = option("Successes in a row that close it again.", default=2, min=1)
    timeout_s: float = option("Longest guarded call, in seconds.", default=30.0, gt=0)


@dataclass(frozen=True)
class Rules(BreakerOptions):
    """All numbers of a circuit; a wrong one is refused here."""

    jitter: float = 0.1
    max_cooldown_s: float = 600.0
    random: Callable[[], float] = _random.random

    def __post_init__(self) -> None:
        for name in ("failure_threshold", "success_threshold"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} is {value!r}; pass a whole number ≥ 1.")
        for name in ("cooldown_s", "max_cooldown_s"):
            require_seconds(name, getattr(self, name))
        number = isinstance(self.jitter, (int, float)) and not isinstance(self.jitter, bool)
        if not number or not 0 <= self.jitter < 1:
            raise InputError(f"jitter is {self.jitter!r}; pass a fraction from 0 to below 1, such as 0.1.")

    def cooldown_after(self, trips: int) -> float:
        """Return how long to stay open after so many trips in a row: doubling, capped, with jitter."""
        ceiling = max(self.max_cooldown_s, self.cooldown_s)
        # Bounded: 2.0 ** 1024 would raise after a thousand trips in a row.
        seconds = min(ceiling, self.cooldown_s * 2.0 ** min(trips - 1, 64))
        # Jitter, so that many processes do not probe a provider at the same moment.
        return min(ceiling, seconds * (1 + self.jitter * (2 * self.random() - 1)))

    def hold(self, seconds: float | None) -> float:
        """Return how long a provider's pause lasts; without a number it is the cooldown."""
        return min(max(self.cooldown_s, HOLD_MIN_S), HOLD_MAX_S) if seconds is None else seconds


@dataclass(frozen=True, slots=True)
class Change:
    """One move from a state to another."""

    before: State
    after: State
    reason: str
    open_for_s: float


class Circuit:
    """State, counters and the one probe. `generation` grows with every move, so old permits are known."""

    __slots__ = (
        "changes", "failures", "generation", "lease_until_s", "probing", "reason",
        "rules", "state", "successes", "trips", "until_s",
    )  # fmt: skip

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.generation = 0
        self.changes: list[Change] = []
        self.probing = False
        self._forget(State.CLOSED, "")

    def tick(self, now_s: float) -> None:
        """Let time act: a cooldown ends, a lost probe becomes a failure."""
        if self.state is State.CLOSED:
            return
        if self.state is State.HALF_OPEN and self.probing and now_s >= self.lease_until_s:
            # Counted from when the lease ended, not from when somebody looked.
            self._trip(self.lease_until_s, "probe_lost")
        if self.state is State.OPEN and now_s >= self.until_s:
            self._move(State.HALF_OPEN, "cooldown_over")

    def admit(self, now_s: float, lease_s: float) -> int | None:
        """Return the generation of a new permit, or None where the call is refused."""
        self.tick(now_s)
        if self.state is State.CLOSED:
            return self.generation
        if self.state is State.OPEN or self.probing:
            return None
        # The lease frees the one probe where its caller dies without a report.
        self.probing = True
        self.lease_until_s = now_s + lease_s
        return self.generation

    def report(self, generation: int, verdict: Verdict, now_s: float) -> bool:
        """Take one permit's verdict; False where the permit is older than the present state."""
        self.tick(now_s)
        if generation != self.generation:
            return False
        self.probing = False
        if verdict.outcome is Outcome.SUCCESS:
            self._succeeded()
        elif verdict.outcome is Outcome.FAILURE:
            self._failed(now_s, verdict.reason)
        elif verdict.outcome is Outcome.HOLD:
            self._open(now_s, self.rules.hold(verdict.hold_s), verdict.reason)
        return True

    def force_open(self, now_s: float, hold_s: float) -> None:
        """Open now, for that long."""
        self._open(now_s, hold_s, "forced")

    def close(self, reason: str) -> None:
        """Close now and forget the past."""
        self.trips = 0
        self._move(State.CLOSED, reason)

    def retry_in_s(self, now_s: float) -> float:
        """Seconds until the next probe may go."""
        if self.state is State.CLOSED:
            return 0.0
        until = self.until_s if self.state is State.OPEN else self.lease_until_s if self.probing else now_s
        return max(0.0, until - now_s)

    def _succeeded(self) -> None:
        self.failures = 0
        if self.state is State.HALF_OPEN:
            self.successes += 1
            if self.successes >= self.rules.success_threshold:
                self.close("recovered")

    def _failed(self, now_s: float, reason: str) -> None:
        self.failures += 1
        if self.state is State.HALF_OPEN or self.failures >= self.rules.failure_threshold:
            self._trip(now_s, reason or "failure")

    def _trip(self, now_s: float, reason: str) -> None:
        self.trips += 1
        self._open(now_s, self.rules.cooldown_after(self.trips), reason)

    def _open(self, now_s: float, seconds: float, reason: str) -> None:
        until_s = now_s + seconds
        self._move(State.OPEN, reason, open_for_s=seconds)
        self.until_s = until_s

    def _move(self, state: State, reason: str, *, open_for_s: float = 0.0) -> None:
        self.changes.append(Change(self.state, state, reason, open_for_s))
        # Trips outlive every move but a recovery: each further one doubles the cooldown.
        trips = self.trips
        self._forget(state, reason)
        self.probing = False
        self.trips = trips

    def _forget(self, state: State, reason: str) -> None:
        self.generation += 1
        self.state = state
        self.reason = reason
        self.failures = self.successes = self.trips = 0
        self.until_s = self.lease_until_s = -math.inf


def require_seconds(name: str, value: float) -> float:
    """Return a finite number of seconds ≥ 0, or raise InputError."""
    wrong = isinstance(value, bool) or not isinstance(value, (int, float)) or value > 1e15
    if wrong or not math.isfinite(value) or value < 0:
        raise InputError(f"{name} is {value!r}; pass finite seconds ≥ 0.")
    return float(value)
