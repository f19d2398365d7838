"""CircuitBreaker: the state machine of `circuit` behind one lock, with a clock, permits and a timeout."""

from __future__ import annotations

import asyncio
import math
import random as _random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from resift._internal.forking import ForkSafeLock, after_fork
from resift.deadline import Clock, Deadline
from resift.errors import CircuitOpenError, DeadlineExceeded, InputError, ProviderTimeout
from resift.events import Sink, emit
from resift.resilience.circuit import Change, Circuit, Rules, State, require_seconds
from resift.resilience.events import CircuitBreakerChanged
from resift.resilience.outcomes import NEUTRAL, SUCCESS, Outcome, Verdict, clamp_hold, classify
from resift.types import JsonObject

T = TypeVar("T")

LEASE_GRACE_S = 5.0
"""How much longer than its timeout a probe may be silent before it counts as lost."""


class Permit:
    """Leave to make one call; report its end once.

    Each report returns whether it acted: a second one, or one that comes too late, does nothing.
    `probe` says that this call decides whether a half-open breaker closes.
    """

    __slots__ = ("_breaker", "_generation", "_open", "_sink", "probe")

    def __init__(self, breaker: CircuitBreaker, generation: int, sink: Sink | None, *, probe: bool) -> None:
        self.probe = probe
        self._breaker = breaker
        self._generation = generation
        self._sink = sink
        self._open = True

    def success(self) -> bool:
        """Report that the provider answered well."""
        return self._breaker._report(self, SUCCESS)

    def failure(self, reason: str = "failure") -> bool:
        """Report that the provider failed."""
        return self._breaker._report(self, Verdict(Outcome.FAILURE, reason))

    def neutral(self) -> bool:
        """Report an end that says nothing about the provider."""
        return self._breaker._report(self, NEUTRAL)

    def hold(self, seconds: float | None = None, reason: str = "rate_limited") -> bool:
        """Report that the provider wants a pause, clamped to 1–300 s."""
        return self._breaker._report(self, Verdict(Outcome.HOLD, reason, clamp_hold(seconds)))

    def error(self, error: BaseException) -> bool:
        """Report what the call raised; what it means is read from the error."""
        return self._breaker._report(self, classify(error))


class CircuitBreaker:
    """Stops asking a provider that fails, and finds out with single probes when it is back.

    Safe to share between threads and event loops. One logical call is one permit, however many
    requests it takes. `timeout_s` is the longest a guarded call may take.
    """

    def __init__(
        self,
        failure_threshold: int = 3,
        cooldown_s: float = 60.0,
        success_threshold: int = 2,
        *,
        timeout_s: float = 30.0,
        jitter: float = 0.1,
        max_cooldown_s: float = 600.0,
        clock: Clock = time.monotonic,
        random: Callable[[], float] = _random.random,
        name: str = "",
        sink: Sink | None = None,
    ) -> None:
        rules = Rules(
            failure_threshold, cooldown_s, success_threshold, timeout_s, jitter, max_cooldown_s, random
        )
        if require_seconds("timeout_s", timeout_s) == 0:
            raise InputError("timeout_s is 0; a call needs some time. Pass seconds > 0.")
        self.name = name
        self.timeout_s = float(timeout_s)
        self._clock = clock
        self._circuit = Circuit(rules)
        self._lock = ForkSafeLock()
        self._listeners: tuple[Sink, ...] = () if sink is None else (sink,)
        self._totals: Counter[str] = Counter()
        after_fork(self)

    def __repr__(self) -> str:
        return f"CircuitBreaker(name={self.name!r}, state={self.state.value})"

    @property
    def state(self) -> State:
        """The state at this moment of the clock."""
        return self._look(None)[0]

    def refuses(self, *, sink: Sink | None = None) -> bool:
        """Whether a call would be refused now; `sink` hears of a change that this look brings about."""
        state, probing = self._look(sink)
        return state is State.OPEN or probing

    def subscribe(self, listener: Sink) -> None:
        """Send `circuit_breaker_changed` events to this listener too; called outside the lock."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def acquire(self, *, timeout_s: float | None = None, sink: Sink | None = None) -> Permit:
        """Return a permit for one call, or raise CircuitOpenError at once.

        `timeout_s` is how long this call may take; a probe silent for 5 s more than that is lost.
        `sink` hears, beside the listeners, of the changes that this call brings about.
        """
        limit_s = self.timeout_s if timeout_s is None else require_seconds("timeout_s", timeout_s)
        with self._lock:
            now_s = self._clock()
            generation = self._circuit.admit(now_s, limit_s + LEASE_GRACE_S)
            changes = self._take_changes()
            probe = self._circuit.probing
            refusal = self._refusal(now_s) if generation is None else None
        # Outside the lock: a listener may ask the breaker itself, or be slow.
        self._emit(changes, sink)
        if generation is None:
            raise refusal or CircuitOpenError("The breaker is open.")
        return Permit(self, generation, sink, probe=probe)

    @asynccontextmanager
    async def guard(
        self, deadline: Deadline | None = None, *, timeout_s: float | None = None, sink: Sink | None = None
    ) -> AsyncIterator[Permit]:
        """Guard the block: a permit before, the timeout around, one outcome after.

        Raises CircuitOpenError instead of entering, and ProviderTimeout when the time is up.
        """
        limit_s = self._limit(deadline, timeout_s)
        permit = self.acquire(timeout_s=limit_s, sink=sink)
        timer = asyncio.timeout(limit_s)
        try:
            async with timer:
                yield permit
        except BaseException as exc:
            # Only its own timer: a TimeoutError of the block is the provider's, and classified as any
            # other.
            if timer.expired() and isinstance(exc, TimeoutError):
                permit.failure("timeout")
                raise ProviderTimeout(
                    f"{self.name or 'The call'} took longer than {limit_s:.3g} s.", provider=self.name
                ) from exc
            permit.error(exc)
            raise
        if timer.expired():  # the block swallowed the cancellation: late is late
            permit.failure("timeout")
        permit.success()

    async def call(
        self,
        fn: Callable[[], Awaitable[T]],
        *,
        deadline: Deadline | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Await `fn()` under guard and return its result."""
        async with self.guard(deadline, timeout_s=timeout_s):
            return await fn()

    def force_open(self, hold_s: float | None = None) -> None:
        """Refuse all calls for that long; without a number until `force_close` or `reset`."""
        held_s = math.inf if hold_s is None else require_seconds("hold_s", hold_s)
        self._locked(lambda now_s: self._circuit.force_open(now_s, held_s))

    def force_close(self) -> None:
        """Close now; failures count from zero as usual."""
        self._locked(lambda now_s: self._circuit.close("forced"))

    def reset(self) -> None:
        """Return to the state of a new breaker, totals included."""
        self._locked(lambda now_s: self._circuit.close("reset"))
        with self._lock:
            self._totals.clear()

    def snapshot(self) -> JsonObject:
        """Return what an operator wants to see, as plain data."""
        with self._lock:
            now_s = self._clock()
            self._circuit.tick(now_s)
            changes = self._take_changes()
            circuit = self._circuit
            seen = {
                "name": self.name,
                "state": circuit.state.value,
                "reason": circuit.reason,
                "retry_in_s": circuit.retry_in_s(now_s),
                "probe_in_flight": circuit.probing,
                "consecutive_failures": circuit.failures,
                "consecutive_successes": circuit.successes,
                "trips": circuit.trips,
                "totals": dict(self._totals),
            }
        self._emit(changes)
        return seen

    def forget_parent(self) -> None:
        """Let a forked child send its own probe: the one in flight reports to the parent."""
        self._circuit.probing = False

    def _report(self, permit: Permit, verdict: Verdict) -> bool:
        with self._lock:
            # A permit of an older generation would count a call of the last outage against the recovered
            # provider.
            acted = permit._open and self._circuit.report(permit._generation, verdict, self._clock())
            permit._open = False
            self._totals[verdict.outcome.value if acted else "ignored"] += 1
            changes = self._take_changes()
        self._emit(changes, permit._sink)
        return acted

    def _look(self, sink: Sink | None) -> tuple[State, bool]:
        with self._lock:
            self._circuit.tick(self._clock())
            seen = self._circuit.state, self._circuit.probing
            changes = self._take_changes()
        self._emit(changes, sink)
        return seen

    def _locked(self, act: Callable[[float], None]) -> None:
        with self._lock:
            act(self._clock())
            changes = self._take_changes()
        self._emit(changes)

    def _take_changes(self) -> list[Change]:
        changes = self._circuit.changes
        if changes:
            self._circuit.changes = []
        return changes

    def _emit(self, changes: list[Change], sink: Sink | None = None) -> None:
        if not changes:
            return
        # A caller's sink that listens anyway hears of a change once.
        known = any(listener is sink for listener in self._listeners)
        listeners = self._listeners if sink is None or known else (*self._listeners, sink)
        for change in changes:
            event = CircuitBreakerChanged(
                breaker=self.name,
                from_state=change.before.value,
                to_state=change.after.value,
                reason=change.reason,
                open_for_s=change.open_for_s,
            )
            for listener in listeners:
                emit(listener, event)

    def _refusal(self, now_s: float) -> CircuitOpenError:
        self._totals["refused"] += 1
        wait_s = self._circuit.retry_in_s(now_s)
        who = f"The breaker of {self.name!r}" if self.name else "The breaker"
        if self._circuit.state is State.HALF_OPEN:
            message = f"{who} is half-open and its one probe is in flight; not asked."
        else:
            message = f"{who} is open ({self._circuit.reason}); not asked for another {wait_s:.3g} s."
        return CircuitOpenError(message, provider=self.name, retry_after_s=wait_s)

    def _limit(self, deadline: Deadline | None, timeout_s: float | None) -> float:
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        if deadline is not None:
            limit_s = min(limit_s, deadline.remaining_s())
        if not limit_s > 0:
            raise DeadlineExceeded(f"No time left to ask {self.name or 'the provider'}.")
        return limit_s
