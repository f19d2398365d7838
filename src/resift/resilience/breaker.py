"""Circuit breakers: stop calling a failing provider, and use single probes to detect when it is back.

`CircuitBreaker` adds a lock, a clock, permits and timeouts to the state machine in `circuit`.
`breakers` shares one breaker per provider, address, model and key within the process.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import random as _random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, TypedDict, TypeVar, Unpack
from urllib.parse import urlsplit

from resift._internal.forking import ForkSafeLock, after_fork
from resift.deadline import Clock, Deadline
from resift.errors import CircuitOpenError, DeadlineExceeded, ProviderTimeout
from resift.events import Event, Sink, emit
from resift.protocols import Scorer, SharesBreaker, display_name
from resift.resilience.circuit import Circuit, Outcome, Rules, State, Verdict, classify, require_seconds

T = TypeVar("T")

log = logging.getLogger("resift.resilience")

LEASE_GRACE_S = 5.0  # a probe is lost if it has not reported this many seconds after its timeout


class CircuitBreakerChanged(Event, name="circuit_breaker_changed"):
    """A breaker moved from one state to another."""

    breaker: str
    from_state: str
    to_state: str
    reason: str
    open_for_s: float


class BreakerSnapshot(TypedDict):
    """The state of a breaker, for operators."""

    name: str
    state: str
    reason: str
    retry_in_s: float
    probe_in_flight: bool
    consecutive_failures: int
    consecutive_successes: int
    trips: int
    totals: dict[str, int]


class Permit:
    """Permission for one call; report its outcome once.

    Each report returns whether it had an effect; a second or late report has none. `probe` is True if the
    outcome of this call decides whether a half-open breaker closes.
    """

    __slots__ = ("_breaker", "_generation", "_open", "_sink", "probe")

    def __init__(self, breaker: CircuitBreaker, generation: int, sink: Sink | None, *, probe: bool) -> None:
        self.probe = probe
        self._breaker = breaker
        self._generation = generation
        self._sink = sink
        self._open = True

    def success(self) -> bool:
        """Report that the call succeeded."""
        return self._breaker._report(self, Verdict(Outcome.SUCCESS))

    def failure(self, reason: str = "failure") -> bool:
        """Report that the provider failed."""
        return self._breaker._report(self, Verdict(Outcome.FAILURE, reason))

    def neutral(self) -> bool:
        """Report an outcome that does not count for or against the provider."""
        return self._breaker._report(self, Verdict(Outcome.NEUTRAL))

    def hold(self, seconds: float | None = None, reason: str = "rate_limited") -> bool:
        """Report that the provider requested a pause, clamped to 1–300 s."""
        return self._breaker._report(self, Verdict(Outcome.HOLD, reason, seconds))

    def error(self, error: BaseException) -> bool:
        """Report the error that the call raised."""
        return self._breaker._report(self, classify(error))


class CircuitBreaker:
    """Stops calls to a failing provider, and uses single probes to detect when it is back.

    Threads and event loops can share a breaker. A logical call needs one permit, even if it makes several
    requests. `timeout_s` is the maximum duration of a guarded call.
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
        rules = Rules(failure_threshold, cooldown_s, success_threshold, timeout_s, jitter, max_cooldown_s, random)
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
        """The current state, according to the clock."""
        return self._locked(lambda now_s: self._circuit.tick(now_s).state)

    def refuses(self, *, sink: Sink | None = None) -> bool:
        """Whether a call would be rejected now; `sink` receives the event of a transition that is due."""
        return self._locked(lambda now_s: self._circuit.tick(now_s).state is State.OPEN or self._circuit.probing, sink)

    def subscribe(self, listener: Sink) -> None:
        """Add a listener for `circuit_breaker_changed` events; it is called outside the lock."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def acquire(self, *, timeout_s: float | None = None, sink: Sink | None = None) -> Permit:
        """Return a permit for one call; raises CircuitOpenError if the call is rejected.

        `timeout_s` is the maximum duration of this call. A probe that has not reported 5 s after that is lost.
        `sink` receives the events that this call causes, in addition to the listeners.
        """
        limit_s = self.timeout_s if timeout_s is None else require_seconds("timeout_s", timeout_s)

        def admit(now_s: float) -> Permit | CircuitOpenError:
            generation = self._circuit.admit(now_s, limit_s + LEASE_GRACE_S)
            if generation is None:
                return self._refuse(now_s)
            return Permit(self, generation, sink, probe=self._circuit.probing)

        outcome = self._locked(admit, sink)
        if isinstance(outcome, CircuitOpenError):
            raise outcome
        return outcome

    @asynccontextmanager
    async def guard(
        self, deadline: Deadline | None = None, *, timeout_s: float | None = None, sink: Sink | None = None
    ) -> AsyncIterator[Permit]:
        """Guard a block: acquire a permit, limit the time, and report one outcome.

        Raises CircuitOpenError if the call is rejected, and ProviderTimeout if the block takes too long.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        if deadline is not None:
            limit_s = min(limit_s, deadline.remaining_s())
        if not limit_s > 0:
            raise DeadlineExceeded(f"No time left to call {self.name or 'the provider'}.")
        permit = self.acquire(timeout_s=limit_s, sink=sink)
        timer = asyncio.timeout(limit_s)
        try:
            async with timer:
                yield permit
        except BaseException as exc:
            # Only if this timer expired: the block may raise a TimeoutError of the provider.
            if timer.expired() and isinstance(exc, TimeoutError):
                permit.failure("timeout")
                raise ProviderTimeout(
                    f"{self.name or 'The call'} took longer than {limit_s:.3g} s.", provider=self.name
                ) from exc
            permit.error(exc)
            raise
        if timer.expired():  # the block suppressed the cancellation, but the call took too long
            permit.failure("timeout")
        permit.success()

    async def call(
        self, fn: Callable[[], Awaitable[T]], *, deadline: Deadline | None = None, timeout_s: float | None = None
    ) -> T:
        """Await `fn()` inside the guard and return its result."""
        async with self.guard(deadline, timeout_s=timeout_s):
            return await fn()

    def force_open(self, hold_s: float | None = None) -> None:
        """Reject all calls for `hold_s` seconds; by default until `force_close` or `reset`."""
        seconds = math.inf if hold_s is None else require_seconds("hold_s", hold_s)
        self._locked(lambda now_s: self._circuit.open(now_s, seconds, "forced"))

    def force_close(self) -> None:
        """Close the breaker now and reset the failure count."""
        self._locked(lambda _: self._circuit.close("forced"))

    def reset(self) -> None:
        """Return to the state of a new breaker, and clear the totals."""
        self._locked(lambda _: self._circuit.close("reset"))
        with self._lock:
            self._totals.clear()

    def snapshot(self) -> BreakerSnapshot:
        """Return the state of the breaker, for operators."""

        def read(now_s: float) -> BreakerSnapshot:
            circuit = self._circuit.tick(now_s)
            return BreakerSnapshot(
                name=self.name,
                state=circuit.state.value,
                reason=circuit.reason,
                retry_in_s=circuit.retry_in_s(now_s),
                probe_in_flight=circuit.probing,
                consecutive_failures=circuit.failures,
                consecutive_successes=circuit.successes,
                trips=circuit.trips,
                totals=dict(self._totals),
            )

        return self._locked(read)

    def reset_after_fork(self) -> None:
        """Allow a forked child to send its own probe, because a probe in flight reports to the parent."""
        self._circuit.probing = False

    def _report(self, permit: Permit, verdict: Verdict) -> bool:
        def report(now_s: float) -> bool:
            # A permit of an earlier generation is ignored: its call may belong to a previous outage.
            counted = permit._open and self._circuit.report(permit._generation, verdict, now_s)
            permit._open = False
            self._totals[verdict.outcome.value if counted else "ignored"] += 1
            return counted

        return self._locked(report, permit._sink)

    def _locked(self, act: Callable[[float], T], sink: Sink | None = None) -> T:
        """Call a function with the time under the lock, emit the transitions it caused, and return its result."""
        with self._lock:
            result = act(self._clock())
            changes, self._circuit.changes = self._circuit.changes, []
        # Emitted outside the lock, because a listener may be slow or use the breaker. A sink that is also a listener
        # receives each event only once.
        known = sink is None or any(listener is sink for listener in self._listeners)
        for change in changes:
            event = CircuitBreakerChanged(breaker=self.name, **change._asdict())
            for listener in self._listeners if known else (*self._listeners, sink):
                emit(listener, event)
        return result

    def _refuse(self, now_s: float) -> CircuitOpenError:
        self._totals["refused"] += 1
        wait_s = self._circuit.retry_in_s(now_s)
        subject = f"The breaker of {self.name!r}" if self.name else "The breaker"
        if self._circuit.state is State.HALF_OPEN:
            message = f"{subject} is half-open and its probe is in flight; the call was not made."
        else:
            message = f"{subject} is open ({self._circuit.reason}); no calls for another {wait_s:.3g} s."
        return CircuitOpenError(message, provider=self.name, retry_after_s=wait_s)


class BreakerKey(NamedTuple):
    """The key of a shared breaker: calls with the same key share one."""

    provider: str
    base_url: str
    model: str
    key_id: str


class BreakerArguments(TypedDict, total=False):
    """Keyword arguments of `CircuitBreaker`."""

    failure_threshold: int
    cooldown_s: float
    success_threshold: int
    timeout_s: float
    jitter: float
    max_cooldown_s: float
    clock: Clock
    random: Callable[[], float]
    name: str
    sink: Sink | None


def key_id(key: str | None) -> str:
    """Return a short fingerprint of an API key that is safe to display; empty without a key."""
    # The prefix makes it differ from plain hashes of the same key.
    return hashlib.sha256(b"resift:" + key.encode()).hexdigest()[:12] if key else ""


class BreakerRegistry:
    """Breakers by key. The first caller's options configure a breaker; later callers share it."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._breakers: dict[BreakerKey, tuple[CircuitBreaker, BreakerArguments]] = {}

    def for_key(
        self, provider: str, base_url: str = "", model: str = "", key_id: str = "", **options: Unpack[BreakerArguments]
    ) -> CircuitBreaker:
        """Return the breaker for this key, which is created with these options on first use."""
        key = BreakerKey(provider, _strip_url(base_url), model, key_id)
        with self._lock:
            if key not in self._breakers:
                arguments: BreakerArguments = {"name": provider, **options}
                self._breakers[key] = (CircuitBreaker(**arguments), options)
            breaker, first_options = self._breakers[key]
        # Not an error, because it is often random which client is created first.
        if options != first_options:
            log.warning("the breaker of %s already exists with other options, which still apply", provider)
        return breaker

    def for_scorer(self, scorer: Scorer, **options: Unpack[BreakerArguments]) -> CircuitBreaker:
        """Return the shared breaker of a scorer's provider, or a new breaker if the scorer does not share one."""
        if isinstance(scorer, SharesBreaker):
            return self.for_key(*scorer.breaker_key, **options)
        arguments: BreakerArguments = {"name": display_name(scorer), **options}
        return CircuitBreaker(**arguments)

    def snapshot(self) -> list[dict[str, object]]:
        """Return the state of all breakers, sorted by key, for operators."""
        with self._lock:
            entries = sorted((key, breaker) for key, (breaker, _) in self._breakers.items())
        return [{**key._asdict(), **breaker.snapshot()} for key, breaker in entries]

    def reset(self) -> None:
        """Reset all breakers; clients keep using them."""
        with self._lock:
            entries = [breaker for breaker, _ in self._breakers.values()]
        for breaker in entries:
            breaker.reset()

    def clear(self) -> None:
        """Remove all breakers, for tests."""
        with self._lock:
            self._breakers.clear()


breakers = BreakerRegistry()  # the breaker registry of this process


def _strip_url(url: str) -> str:
    """Remove user, password, query and fragment from a URL, because the key of a breaker is visible to operators."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme.lower()}://{host}{parts.path.rstrip('/')}" if host else url.rstrip("/")
