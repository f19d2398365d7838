"""Locks, limits, breakers and connections work in forked child processes."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from resift._internal.forking import ForkSafeLock
from resift.deadline import Deadline
from resift.rerankers.hosted import HostedReranker
from resift.rerankers.hosted.transport import ConcurrencyLimit
from resift.resilience import Budget, CircuitBreaker, State, breakers
from resift.testing import FakeClock
from resift.types import Hit
from tests.providers import ProviderServer

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def in_child(check) -> int:
    """Run the check in a forked child, at most 20 s; return its exit code, 0 when it returned True."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if check() else 1)
        except BaseException:
            os._exit(2)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -9


def hold_in_thread(lock) -> tuple[threading.Thread, threading.Event]:
    """Return a thread that holds the lock until the event is set."""
    holding, release = threading.Event(), threading.Event()

    def hold():
        with lock:
            holding.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait(5)
    return thread, release


def test_a_lock_held_by_another_thread_is_free_in_the_child():
    lock = ForkSafeLock()
    thread, release = hold_in_thread(lock)

    def acquire() -> bool:
        with lock:
            return True

    try:
        assert in_child(acquire) == 0
    finally:
        release.set()
        thread.join()


def test_breakers_budgets_and_their_registry_work_in_the_child():
    """Other threads hold the locks at the moment of the fork, and a probe is in flight."""
    clock = FakeClock()
    breaker = CircuitBreaker(failure_threshold=1, cooldown_s=1, jitter=0, clock=clock)
    breaker.acquire().failure()
    clock.advance(2)
    probe = breaker.acquire()
    assert breaker.refuses()
    budget = Budget()
    threads = [hold_in_thread(part._lock) for part in (breaker, budget, breakers)]

    def use_all() -> bool:
        permit = breaker.acquire()
        permit.success()
        breaker.acquire().success()
        budget.record(100, 1.0)
        breakers.for_key("forked")
        return breaker.state is State.CLOSED and budget.allows(1, Deadline.after(10))

    try:
        assert in_child(use_all) == 0
    finally:
        for thread, release in threads:
            release.set()
            thread.join()
    assert probe.success(), "the parent's probe still reports to the parent"


def test_a_limit_is_empty_in_the_child():
    """The parent's requests do not count in the child."""
    limit = ConcurrencyLimit(1)

    async def fork_inside() -> int:
        async with limit.permit():
            return in_child(lambda: limit.in_use == 0)

    assert asyncio.run(fork_inside()) == 0
    assert limit.in_use == 0


def test_a_hosted_reranker_used_in_the_parent_works_in_the_child():
    """The child opens new connections, and the parent's stay usable."""
    hits = [Hit("a", "one"), Hit("b", "two")]
    with ProviderServer() as server:
        reranker = HostedReranker("jina", base_url=server.base_url("jina"), api_key="k", allow_loopback=True)

        async def score() -> bool:
            scores = await reranker.score("q", hits, deadline=Deadline.after(10))
            return None not in scores.values

        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(score())
        assert in_child(lambda: asyncio.run(score())) == 0
        assert loop.run_until_complete(score())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@pytest.mark.real_model
def test_a_child_reranks_if_the_parent_was_reranking_at_the_fork():
    """Other threads use the tokenizer, the engine and the model registry at the moment of the fork."""
    import resift

    texts = ["Paris is the capital of France.", "Bananas are yellow."] * 4
    expected = resift.rerank("capital of France", texts).ids
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            resift.rerank("capital of France", texts)

    threads = [threading.Thread(target=keep_busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        codes = [in_child(lambda: resift.rerank("capital of France", texts).ids == expected) for _ in range(4)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert codes == [0, 0, 0, 0]
