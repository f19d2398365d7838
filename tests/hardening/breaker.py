"""A breaker under random histories: compared with a model of it, and from two event loops at once."""

from __future__ import annotations

import asyncio
import random
import threading
import traceback

from resift.errors import CircuitOpenError, ProviderRejected, ProviderServerError
from resift.resilience import CircuitBreaker, State
from tests.hardening.report import Outcome


def attack(seed: int, count: int) -> Outcome:
    """Take `count` steps and compare them with the model, and take as many from two loops."""
    outcome = Outcome("steps of a circuit breaker, compared with a model of it, and from two event loops at once")
    _compare_with_model(outcome, count)
    _from_two_loops(outcome, seed, count)
    return outcome


def _compare_with_model(outcome: Outcome, wanted: int) -> None:
    from hypothesis import HealthCheck, settings
    from hypothesis.database import InMemoryExampleDatabase
    from hypothesis.stateful import run_state_machine_as_test

    from tests.resilience.breaker_machine import BreakerMachine

    chosen = settings(
        max_examples=max(5, min(500, wanted // 80)),
        stateful_step_count=80,
        deadline=None,
        derandomize=False,
        database=InMemoryExampleDatabase(),
        suppress_health_check=list(HealthCheck),
    )
    BreakerMachine.steps = 0
    while BreakerMachine.steps < wanted:
        try:
            run_state_machine_as_test(BreakerMachine, settings=chosen)
        except AssertionError:
            outcome.fail(f"the breaker left its model: {traceback.format_exc()[-390:]}")
            break
    outcome.tried += BreakerMachine.steps
    outcome.figures["steps compared with the model"] = BreakerMachine.steps


def _from_two_loops(outcome: Outcome, seed: int, wanted: int) -> None:
    breaker = CircuitBreaker(3, 0.0005, 2, jitter=0.0, timeout_s=5.0)
    probes, worst, lock = 0, 0, threading.Lock()
    trips: list[object] = []
    breaker.subscribe(trips.append)

    async def step(draw: random.Random) -> None:
        nonlocal probes, worst
        try:
            async with breaker.guard() as permit:
                if permit.probe:
                    with lock:
                        probes += 1
                        worst = max(worst, probes)
                try:
                    await asyncio.sleep(0)
                    _end_somehow(draw)
                finally:
                    if permit.probe:
                        with lock:
                            probes -= 1
        except (CircuitOpenError, ProviderServerError, ProviderRejected):
            pass

    async def loop(number: int) -> None:
        draw = random.Random(seed * 2 + number)
        for _ in range(wanted // 16):
            await asyncio.gather(*(step(draw) for _ in range(8)))

    threads = [threading.Thread(target=lambda n=n: asyncio.run(loop(n))) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    steps = wanted // 16 * 16
    outcome.tried += steps
    outcome.figures |= {"steps from two loops": steps, "changes of state": len(trips), "probes at once": worst}
    outcome.check(worst <= 1, f"{worst} probes were in flight at once")
    outcome.check(len(trips) > 10, "the breaker never moved: nothing was tried")
    outcome.check(_closes_again(breaker), "the breaker stayed shut although every call succeeds")


def _end_somehow(draw: random.Random) -> None:
    kind = draw.random()
    if kind < 0.35:
        raise ProviderServerError("x")
    if kind < 0.4:
        raise ProviderRejected("x")


def _closes_again(breaker: CircuitBreaker) -> bool:
    until = asyncio.new_event_loop()
    try:
        for _ in range(2000):
            if breaker.state is State.CLOSED:
                return True
            try:
                breaker.acquire().success()
            except CircuitOpenError:
                until.run_until_complete(asyncio.sleep(0.0005))
        return False
    finally:
        until.close()
