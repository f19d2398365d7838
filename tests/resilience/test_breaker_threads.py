"""One breaker shared by eight threads and two event loops."""

from __future__ import annotations

import asyncio
import random
import sys
import threading

import pytest

from resift.errors import CircuitOpenError, ProviderRejected, ProviderServerError
from resift.resilience import CircuitBreaker, State

THREADS, LOOPS, CALLS = 8, 2, 1500


class Watch:
    """Counts probes in flight; a probe is taken off the count before it is reported."""

    def __init__(self):
        self.lock = threading.Lock()
        self.flying = self.most = self.probes = 0

    def __enter__(self):
        with self.lock:
            self.flying += 1
            self.probes += 1
            self.most = max(self.most, self.flying)

    def __exit__(self, *_):
        with self.lock:
            self.flying -= 1


@pytest.fixture
def eager_switching():
    """Let threads take turns a hundred times more often than usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.00005)
    yield
    sys.setswitchinterval(before)


def threaded(breaker, watch, seed):
    draw = random.Random(seed)
    for _ in range(CALLS):
        try:
            permit = breaker.acquire()
        except CircuitOpenError:
            continue
        if permit.probe:
            with watch:
                sum(range(draw.randrange(500)))
        end = draw.choice((permit.success, permit.failure, permit.failure, permit.neutral))
        end()
        if draw.random() < 0.2:
            end()


async def one(breaker, watch, draw):
    async with breaker.guard() as permit:
        if permit.probe:
            with watch:
                await asyncio.sleep(0)
        raise draw.choice((ProviderServerError("x"), ProviderRejected("x")))


async def looped(breaker, watch, seed):
    draw = random.Random(seed)
    for _ in range(CALLS // 10):
        await asyncio.gather(*(one(breaker, watch, draw) for _ in range(5)), return_exceptions=True)


def test_eight_threads_and_two_loops_never_share_a_probe(eager_switching):
    """Never more than one probe, no deadlock, and the breaker closes once the upstream is well."""
    changes = []
    breaker = CircuitBreaker(3, 0.0003, 2, max_cooldown_s=0.001, sink=changes.append)
    watch = Watch()
    workers = [threading.Thread(target=threaded, args=(breaker, watch, seed)) for seed in range(THREADS)]
    workers += [
        threading.Thread(target=lambda seed=seed: asyncio.run(looped(breaker, watch, seed))) for seed in range(LOOPS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=30)
    assert not any(worker.is_alive() for worker in workers)
    assert watch.probes > 10
    assert watch.most == 1
    while breaker.state is not State.CLOSED:
        try:
            breaker.acquire().success()
        except CircuitOpenError:
            continue
