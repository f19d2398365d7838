"""The breaker under a thousand random steps, and 20,000 with the profile `thorough`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.resilience.breaker_machine import BreakerMachine


def test_random_histories_keep_the_rules_of_the_breaker():
    """One probe at most, never stuck, stale and double reports do nothing, neutral moves nothing."""
    BreakerMachine.steps = 0
    run_state_machine_as_test(
        BreakerMachine,
        settings=settings(
            max_examples=settings().max_examples,
            stateful_step_count=60,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert BreakerMachine.steps >= 1_000
