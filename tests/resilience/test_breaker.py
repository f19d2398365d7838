"""The breaker's rules, and each known failure of other breakers."""

from __future__ import annotations

import asyncio
import time

import pytest

from resift.deadline import Deadline
from resift.errors import (
    CircuitOpenError,
    DeadlineExceeded,
    InputError,
    ProviderAuthError,
    ProviderBadAnswer,
    ProviderRateLimited,
    ProviderRejected,
    ProviderServerError,
    ProviderTimeout,
    ProviderUnreachable,
)
from resift.events import ListSink
from resift.resilience import CircuitBreaker, State
from resift.testing import FakeClock


def make_breaker(clock, **options):
    return CircuitBreaker(**{"jitter": 0.0, "timeout_s": 10.0, "clock": clock, "name": "voyage", **options})


def tripped(clock, **options):
    breaker = make_breaker(clock, **options)
    for _ in range(3):
        breaker.acquire().failure()
    return breaker


@pytest.fixture
def clock():
    return FakeClock()


def test_opens_after_three_failures_in_a_row_and_fails_fast(clock):
    breaker = make_breaker(clock)
    for _ in range(2):
        breaker.acquire().failure()
    breaker.acquire().success()
    for _ in range(2):
        breaker.acquire().failure()
    assert breaker.state is State.CLOSED
    breaker.acquire().failure()
    assert breaker.state is State.OPEN
    with pytest.raises(CircuitOpenError, match=r"'voyage' is open .* another 60 s") as refused:
        breaker.acquire()
    assert refused.value.retry_after_s == 60.0
    assert refused.value.transient


def test_half_open_closes_after_two_good_probes(clock):
    breaker = tripped(clock)
    clock.advance(59.9)
    assert breaker.state is State.OPEN
    clock.advance(0.1)
    assert breaker.state == "HALF_OPEN"
    breaker.acquire().success()
    assert breaker.state is State.HALF_OPEN
    breaker.acquire().success()
    assert breaker.state is State.CLOSED


def test_one_bad_probe_reopens_and_the_cooldown_doubles_to_ten_minutes(clock):
    breaker = tripped(clock)
    for expected_s in (60, 120, 240, 480, 600, 600):
        assert breaker.snapshot()["retry_in_s"] == pytest.approx(expected_s)
        clock.advance(expected_s)
        breaker.acquire().failure()
    clock.advance(600)
    for _ in range(2):
        breaker.acquire().success()
    for _ in range(3):
        breaker.acquire().failure()
    assert breaker.snapshot()["retry_in_s"] == 60, "closing forgets the doubling"


@pytest.mark.parametrize(("draw", "seconds"), [(0.0, 54.0), (0.5, 60.0), (1.0, 66.0)])
def test_cooldown_has_ten_percent_of_jitter(clock, draw, seconds):
    breaker = tripped(clock, jitter=0.1, random=lambda: draw)
    assert breaker.snapshot()["retry_in_s"] == pytest.approx(seconds)


# Known failures of other breakers (DESIGN, "Breaker").


@pytest.mark.parametrize("ignored", [ProviderRejected("no"), asyncio.CancelledError(), InputError("no")])
def test_an_ignored_error_does_not_leave_it_stuck_half_open(clock, ignored):
    breaker = tripped(clock)
    clock.advance(60)
    assert breaker.acquire().error(ignored)
    assert breaker.state is State.HALF_OPEN
    breaker.acquire().success()


def test_a_hung_probe_is_freed_by_its_lease_as_a_failure(clock):
    breaker = tripped(clock)
    clock.advance(60)
    hung = breaker.acquire(timeout_s=2.0)
    clock.advance(6.9)
    with pytest.raises(CircuitOpenError, match="half-open"):
        breaker.acquire()
    clock.advance(0.1)
    assert breaker.state is State.OPEN
    assert breaker.snapshot()["reason"] == "probe_lost"
    assert not hung.success()
    clock.advance(120)
    breaker.acquire().success()


def test_a_lost_probe_counts_from_the_end_of_its_lease(clock):
    breaker = tripped(clock)
    clock.advance(60)
    breaker.acquire()
    clock.advance(3600)
    assert breaker.state is State.HALF_OPEN


def test_a_cancelled_probe_allows_the_next_one(clock):
    breaker = tripped(clock)
    clock.advance(60)

    async def cancelled():
        task = asyncio.create_task(breaker.call(lambda: asyncio.sleep(60)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancelled())
    assert breaker.acquire().probe


def test_ten_callers_at_once_get_one_probe(clock):
    breaker = tripped(clock)
    clock.advance(60)
    asked = []

    async def ask():
        asked.append(1)
        await asyncio.sleep(0)

    async def ten():
        return await asyncio.gather(*(breaker.call(ask) for _ in range(10)), return_exceptions=True)

    outcomes = asyncio.run(ten())
    assert len(asked) == 1
    assert sum(isinstance(outcome, CircuitOpenError) for outcome in outcomes) == 9


def test_a_late_result_does_not_act_on_a_new_state(clock):
    breaker = make_breaker(clock)
    late = [breaker.acquire() for _ in range(3)]
    for _ in range(3):
        breaker.acquire().failure()
    clock.advance(60)
    assert breaker.state is State.HALF_OPEN
    assert [permit.success() for permit in late] == [False] * 3
    assert breaker.state is State.HALF_OPEN


def test_a_double_report_does_nothing(clock):
    breaker = make_breaker(clock)
    permit = breaker.acquire()
    assert permit.failure()
    assert not any(permit.failure() for _ in range(5))
    assert breaker.state is State.CLOSED


def test_a_clients_cancellation_does_not_trip_a_healthy_upstream(clock):
    breaker = make_breaker(clock)

    async def impatient():
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await breaker.call(lambda: asyncio.sleep(60))

    asyncio.run(impatient())
    assert breaker.state is State.CLOSED
    assert breaker.snapshot()["totals"] == {"neutral": 5}


def test_the_breakers_own_timeout_is_recorded():
    breaker = CircuitBreaker(timeout_s=0.002, name="voyage")

    async def slow():
        for _ in range(3):
            with pytest.raises(ProviderTimeout, match="voyage took longer than"):
                await breaker.call(lambda: asyncio.sleep(60))

    asyncio.run(slow())
    assert breaker.state is State.OPEN
    assert breaker.snapshot()["reason"] == "timeout"


def test_a_block_that_swallows_the_timeout_is_still_late():
    breaker = CircuitBreaker(1, timeout_s=0.002)

    async def stubborn():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "late"

    assert asyncio.run(breaker.call(stubborn)) == "late"
    assert breaker.state is State.OPEN


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ProviderServerError("x", status=500), "server_error"),
        (ProviderTimeout("x"), "timeout"),
        (ProviderUnreachable("x"), "unreachable"),
        (ProviderBadAnswer("x"), "bad_answer"),
        (ZeroDivisionError(), "error"),
    ],
)
def test_failures_count(clock, error, reason):
    """Status 500 and unknown errors are failures."""
    breaker = make_breaker(clock, failure_threshold=1)

    async def fails():
        raise error

    with pytest.raises(type(error)):
        asyncio.run(breaker.call(fails))
    assert breaker.state is State.OPEN
    assert breaker.snapshot()["reason"] == reason


@pytest.mark.parametrize(("header", "held_s"), [(0, 1), (0.2, 1), (42, 42), (9999, 300), (None, 60), (-1, 1)])
def test_rate_limit_holds_for_the_clamped_header(clock, header, held_s):
    breaker = make_breaker(clock)
    breaker.acquire().error(ProviderRateLimited("x", status=429, retry_after_s=header))
    seen = breaker.snapshot()
    assert (seen["state"], seen["reason"], seen["retry_in_s"]) == ("OPEN", "rate_limited", held_s)
    clock.advance(held_s)
    assert breaker.acquire().probe


def test_503_with_retry_after_holds_and_without_counts(clock):
    breaker = make_breaker(clock)
    breaker.acquire().error(ProviderServerError("x", status=503))
    assert breaker.snapshot()["consecutive_failures"] == 1
    breaker.acquire().error(ProviderServerError("x", status=503, retry_after_s=7.0))
    assert breaker.snapshot()["retry_in_s"] == 7.0


def test_a_refused_key_holds_five_minutes(clock):
    breaker = make_breaker(clock)
    breaker.acquire().error(ProviderAuthError("x", status=401))
    assert breaker.snapshot()["reason"] == "auth"
    assert breaker.snapshot()["retry_in_s"] == 300


def test_batches_that_fail_together_are_one_outcome(clock):
    breaker = make_breaker(clock)
    group = BaseExceptionGroup("", [ProviderServerError("x"), ProviderRejected("x"), ProviderServerError("x")])
    breaker.acquire().error(group)
    assert breaker.snapshot()["consecutive_failures"] == 1
    breaker.acquire().error(ExceptionGroup("", [ProviderServerError("x"), ProviderRateLimited("x", retry_after_s=9)]))
    assert breaker.snapshot()["reason"] == "rate_limited"


def test_without_time_left_nothing_is_called(clock):
    breaker = make_breaker(clock)
    with pytest.raises(DeadlineExceeded):
        asyncio.run(breaker.call(lambda: asyncio.sleep(0), deadline=Deadline.after(0, clock=clock)))
    assert breaker.snapshot()["totals"] == {}


def test_a_jumping_wall_clock_changes_nothing(clock, monkeypatch):
    breaker = tripped(clock)
    for jump_s in (-1e9, 1e9, 0.0):
        monkeypatch.setattr(time, "time", lambda jump_s=jump_s: jump_s)
        assert breaker.state is State.OPEN
        assert breaker.snapshot()["retry_in_s"] == 60
    clock.advance(60)
    assert breaker.state is State.HALF_OPEN


def test_operators_can_force_both_ways(clock):
    breaker = make_breaker(clock)
    flying = breaker.acquire()
    breaker.force_open()
    clock.advance(10_000)
    assert breaker.state is State.OPEN
    assert not flying.success()
    breaker.force_close()
    assert breaker.state is State.CLOSED
    breaker.force_open(hold_s=5)
    clock.advance(5)
    assert breaker.state is State.HALF_OPEN
    breaker.reset()
    assert breaker.snapshot()["totals"] == {}
    assert breaker.state is State.CLOSED


def test_changes_are_emitted_outside_the_lock(clock):
    heard = ListSink()
    breaker = make_breaker(clock, sink=heard)
    breaker.subscribe(lambda event: breaker.snapshot())
    breaker.subscribe(lambda event: 1 / 0)
    for _ in range(3):
        breaker.acquire(sink=heard).failure("server_error")
    clock.advance(60)
    for _ in range(2):
        breaker.acquire().success()
    told = [(event.from_state, event.to_state, event.reason) for event in heard.named("circuit_breaker_changed")]
    assert told == [
        ("CLOSED", "OPEN", "server_error"),
        ("OPEN", "HALF_OPEN", "cooldown_over"),
        ("HALF_OPEN", "CLOSED", "recovered"),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"failure_threshold": -1},
        {"failure_threshold": 0},
        {"failure_threshold": 2.5},
        {"success_threshold": 0},
        {"success_threshold": True},
        {"cooldown_s": -1},
        {"cooldown_s": float("nan")},
        {"cooldown_s": "60"},
        {"timeout_s": 0},
        {"timeout_s": float("inf")},
        {"jitter": 1.0},
        {"jitter": -0.1},
        {"max_cooldown_s": -1},
    ],
)
def test_an_invalid_number_raises_input_error(options):
    (name,) = options
    with pytest.raises(InputError, match=f"^{name} is .*pass|Pass"):
        CircuitBreaker(**options)
