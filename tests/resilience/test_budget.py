"""The budget's floor, what it learns, and what it keeps for the fallback."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.deadline import Deadline
from resift.errors import InputError
from resift.resilience import Budget
from resift.testing import FakeClock


def within(seconds):
    return Deadline.after(seconds, clock=FakeClock())


@pytest.mark.parametrize(
    ("n", "left_s", "allowed"),
    [(4, 0.25, True), (4, 0.249, False), (100, 2.55, True), (100, 2.549, False), (0, 0.25, True)],
)
def test_the_floor_is_the_larger_of_absolute_and_per_item_plus_the_reserve(n, left_s, allowed):
    """25 ms per chunk to begin with; the fallback's 50 ms are never given away."""
    assert Budget().allows(n, within(left_s)) is allowed


def test_without_a_deadline_everything_is_allowed():
    assert Budget().allows(10**6, Deadline.never())


def test_latency_is_measured_per_provider():
    budget = Budget()
    for _ in range(10):
        budget.record(100, 0.4, provider="fast")
        budget.record(100, 10.0, provider="slow")
    assert budget.per_item_s("fast") == pytest.approx(0.004)
    assert budget.per_item_s("slow") == pytest.approx(0.1)
    assert budget.allows(100, within(0.5), provider="fast")
    assert not budget.allows(100, within(5), provider="slow")
    assert budget.per_item_s("new") == 0.025


def test_one_outlier_moves_nothing():
    budget = Budget()
    for elapsed_s in (2.0, 2.0, 2.0, 2.0, 2.0, 30.0):
        budget.record(100, elapsed_s)
    assert budget.per_item_s() == pytest.approx(0.02)


def test_small_calls_are_not_measured():
    """A round trip for one chunk is no time per chunk."""
    budget = Budget()
    for _ in range(20):
        budget.record(1, 0.15)
    assert budget.per_item_s() == 0.025


def test_a_call_that_ran_out_of_time_can_only_raise_the_estimate():
    budget = Budget()
    for _ in range(8):
        budget.record(100, 0.1, finished=False)
    assert budget.per_item_s() == 0.025
    for _ in range(8):
        budget.record(100, 9.0, finished=False)
    assert budget.per_item_s() == pytest.approx(0.09)


def test_old_measurements_expire():
    """A provider is never shut out for good: what was measured too long ago no longer counts."""
    clock = FakeClock()
    budget = Budget(clock=clock, memory_s=600)
    for _ in range(40):
        budget.record(100, 40.0)
    assert not budget.allows(100, within(10))
    clock.advance(601)
    assert budget.allows(100, within(10))
    assert budget.snapshot() == {"": 0.025}


@given(st.lists(st.tuples(st.integers(-5, 1000), st.floats(-1, 1e6), st.booleans()), max_size=60))
def test_measured_latency_stays_within_its_bounds(calls):
    budget = Budget(per_item_bounds_s=(0.001, 0.2))
    for n, elapsed_s, finished in calls:
        budget.record(n, elapsed_s, finished=finished)
    assert 0.001 <= budget.per_item_s() <= 0.2


@pytest.mark.parametrize(
    "options",
    [
        {"absolute_floor_s": -1},
        {"per_item_floor_s": float("nan")},
        {"reserve_s": float("inf")},
        {"reserve_s": None},
        {"memory_s": -1},
        {"per_item_bounds_s": (1.0, 0.5)},
    ],
)
def test_an_invalid_number_raises_input_error(options):
    (name,) = options
    with pytest.raises(InputError, match=f"^{name} is .*pass"):
        Budget(**options)
