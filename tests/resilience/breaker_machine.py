"""A breaker under random histories, compared with a simpler model of the same rules."""

from __future__ import annotations

import asyncio
import math
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from resift.errors import (
    CircuitOpenError,
    ProviderAuthError,
    ProviderBadAnswer,
    ProviderRateLimited,
    ProviderRejected,
    ProviderServerError,
    ProviderTimeout,
    ProviderUnreachable,
)
from resift.resilience import CircuitBreaker, Permit, State
from resift.testing import FakeClock

LEASE_S = 10.0 + 5.0
FAILURES = (
    ProviderTimeout("x"),
    ProviderUnreachable("x"),
    ProviderServerError("x"),
    ProviderBadAnswer("x"),
    KeyError(),
)
NEUTRALS = (ProviderRejected("x"), asyncio.CancelledError(), KeyboardInterrupt())


class BreakerMachine(RuleBasedStateMachine):
    """Every rule is one step; the invariants hold after each."""

    steps: ClassVar[int] = 0
    permits = Bundle("permits")

    @initialize(failures=st.integers(1, 4), successes=st.integers(1, 3))
    def start(self, failures, successes):
        self.clock = FakeClock()
        self.wall_s = 0.0
        self.moves: list[tuple[str, str]] = []
        self.breaker = CircuitBreaker(
            failures, 60.0, successes, timeout_s=10.0, jitter=0.0, clock=self.clock, sink=self.heard
        )
        self.failure_threshold, self.success_threshold = failures, successes
        self.state, self.until_s, self.trips = "CLOSED", 0.0, 0
        self.bad = self.good = 0
        self.probe: Permit | None = None
        self.lease_s = 0.0
        self.current: set[int] = set()  # permits whose report may still act
        self.kept: list[Permit] = []  # keeps id() unique

    def heard(self, event):
        self.moves.append((event.from_state, event.to_state))
        assert self.breaker.snapshot()["state"]  # a listener may call back: no lock is held

    # The account.
    def become(self, state, until_s=0.0):
        self.state, self.until_s = state, until_s
        self.bad = self.good = 0
        self.probe = None
        self.current.clear()

    def trip(self, at_s):
        self.trips += 1
        self.become("OPEN", at_s + min(600.0, 60.0 * 2 ** (self.trips - 1)))

    def settle(self):
        if self.state == "HALF_OPEN" and self.probe is not None and self.clock() >= self.lease_s:
            self.trip(self.lease_s)
        if self.state == "OPEN" and self.clock() >= self.until_s:
            self.become("HALF_OPEN")

    def act(self, permit, acted) -> bool:
        """Whether the report of this permit must act; the breaker's own answer has to agree."""
        self.settle()
        expected = id(permit) in self.current
        self.current.discard(id(permit))
        assert acted is expected
        if expected and permit is self.probe:
            self.probe = None
        return expected

    # The steps.
    @rule(target=permits)
    def acquire(self):
        self.settle()
        must_refuse = self.state == "OPEN" or (self.state == "HALF_OPEN" and self.probe is not None)
        try:
            permit = self.breaker.acquire()
        except CircuitOpenError:
            assert must_refuse
            return multiple()
        assert not must_refuse
        assert permit.probe is (self.state == "HALF_OPEN")
        self.kept.append(permit)
        self.current.add(id(permit))
        if self.state == "HALF_OPEN":
            self.probe, self.lease_s = permit, self.clock() + LEASE_S
        return permit

    @rule(permit=permits, error=st.sampled_from((None, *FAILURES)))
    def fail(self, permit, error):
        if self.act(permit, permit.failure() if error is None else permit.error(error)):
            self.bad += 1
            if self.state == "HALF_OPEN" or self.bad >= self.failure_threshold:
                self.trip(self.clock())

    @rule(permit=permits)
    def succeed(self, permit):
        if self.act(permit, permit.success()):
            self.bad = 0
            self.good += self.state == "HALF_OPEN"
            if self.good >= self.success_threshold:
                self.trips = 0
                self.become("CLOSED")

    @rule()
    def fail_and_cool_down(self):
        """Random steps alone are rarely half-open, where most of the rules are."""
        self.settle()
        if self.state == "CLOSED":
            self.call_in_a_row([False] * self.failure_threshold)
        self.settle()
        if self.state == "OPEN":
            self.clock.advance(self.until_s - self.clock())
        self.agrees()

    @rule(good=st.lists(st.booleans(), min_size=1, max_size=4))
    def call_in_a_row(self, good):
        for each in good:
            permit = self.acquire()
            if not isinstance(permit, Permit):
                return
            if each:
                self.succeed(permit)
            else:
                self.fail(permit, None)
            self.agrees()

    @rule(permit=permits, error=st.sampled_from((None, *NEUTRALS)))
    def neutral(self, permit, error):
        before = self.breaker.snapshot()
        self.act(permit, permit.neutral() if error is None else permit.error(error))
        after = self.breaker.snapshot()
        for moved in ("state", "consecutive_failures", "consecutive_successes", "trips"):
            assert after[moved] == before[moved]

    @rule(permit=permits, header=st.sampled_from((None, -5.0, 0.0, 0.5, 7.0, 300.0, 9000.0, math.nan)))
    def rate_limit(self, permit, header):
        if self.act(permit, permit.error(ProviderRateLimited("x", retry_after_s=header))):
            known = header is not None and not math.isnan(header)
            self.become("OPEN", self.clock() + (min(max(header, 1.0), 300.0) if known else 60.0))

    @rule(permit=permits)
    def refuse_key(self, permit):
        if self.act(permit, permit.error(ProviderAuthError("x"))):
            self.become("OPEN", self.clock() + 300.0)

    @rule(lost=consumes(permits))
    def lose(self, lost):
        """A call that hangs or dies and never reports an outcome."""

    @rule(seconds=st.sampled_from((0.001, 1.0, 14.999, 15.0, 59.999, 60.0, 61.0, 300.0, 3600.0)))
    def wait(self, seconds):
        self.clock.advance(seconds)

    @rule(to_s=st.floats(-1e12, 1e12))
    def jump_wall_clock(self, to_s):
        self.wall_s = to_s

    @rule()
    def operate(self):
        self.breaker.force_open()
        self.become("OPEN", math.inf)
        self.clock.advance(100_000.0)
        assert self.breaker.state is State.OPEN
        self.breaker.force_close()
        self.trips = 0
        self.become("CLOSED")

    @invariant()
    def agrees(self):
        BreakerMachine.steps += 1
        if not hasattr(self, "breaker"):
            return
        self.settle()
        seen = self.breaker.snapshot()
        assert seen["state"] == self.state
        assert seen["probe_in_flight"] is (self.probe is not None)
        assert (seen["consecutive_failures"], seen["consecutive_successes"]) == (self.bad, self.good)
        # Never stuck: the way out is always a known, finite time away.
        way_out_s = {"CLOSED": self.clock(), "OPEN": self.until_s, "HALF_OPEN": self.lease_s}[self.state]
        if self.state != "HALF_OPEN" or self.probe is not None:
            assert math.isclose(seen["retry_in_s"], way_out_s - self.clock(), abs_tol=1e-6)
        # (now + 600) - now is 600 only to the last digits of a float.
        assert seen["retry_in_s"] <= 600.0 + 1e-6
        for (_, there), (here, _) in zip(self.moves, self.moves[1:], strict=False):
            assert there == here
