"""The engine: fair, bounded by deadlines, honest about failures, alive after a fork."""

from __future__ import annotations

import asyncio
import os
import threading
from functools import partial

import pytest

from resift.deadline import Deadline
from resift.errors import ModelError
from resift.models.engine import Engine, shared_engine, usable_cores, wait_for_job


@pytest.fixture
def engine():
    made = Engine(workers=1)
    yield made
    made.close()


def test_all_tasks_of_a_job_are_done(engine):
    done = []
    assert engine.submit([partial(done.append, n) for n in range(20)]).future.result(5) is True
    assert done == list(range(20))


def test_a_job_without_tasks_is_done_at_once(engine):
    assert engine.submit([]).future.result(0) is True


def test_a_small_job_does_not_wait_for_a_large_one(engine):
    order, gate = [], threading.Event()
    first = engine.submit([lambda: gate.wait(5) and None])
    large = engine.submit([partial(order.append, "large") for _ in range(50)])
    small = engine.submit([partial(order.append, "small") for _ in range(2)])
    gate.set()
    for job in (first, large, small):
        job.future.result(5)
    assert order.index("small") <= 1
    assert [n for n, who in enumerate(order) if who == "small"][-1] <= 4


def test_a_small_job_passes_several_large_ones_and_none_of_them_starves():
    """Ten tasks among four jobs of four hundred are done after few others; the oldest goes on meanwhile."""
    engine = Engine(1)
    done: list[str] = []
    gate = threading.Event()
    first = engine.submit([lambda: gate.wait(5) and None])
    large = [engine.submit([partial(done.append, f"large {at}")] * 400) for at in range(4)]
    small = [engine.submit([partial(done.append, "small")] * 10) for _ in range(3)]
    gate.set()
    for job in (first, *large, *small):
        job.future.result(30)
    engine.close()
    last = len(done) - 1 - done[::-1].index("small")
    assert last < 45
    assert done[:last].count("large 0") >= 8


def test_a_deadline_drops_what_has_not_begun(engine):
    now = [0.0]
    deadline = Deadline.after(1.0, clock=lambda: now[0])
    done = []

    def work(n):
        done.append(n)
        now[0] += 0.4

    assert engine.submit([partial(work, n) for n in range(10)], deadline=deadline).future.result(5) is False
    assert done == [0, 1, 2]


def test_a_task_may_return_more_tasks_of_its_job(engine):
    done = []
    job = engine.submit([lambda: [partial(done.append, "a"), partial(done.append, "b")], partial(done.append, "c")])
    assert job.future.result(5) is True
    assert done == ["a", "b", "c"]


def test_a_failing_task_fails_its_job_and_no_other(engine):
    def explode():
        raise RuntimeError("broken")

    bad, good = engine.submit([explode, explode]), engine.submit([lambda: None])
    with pytest.raises(RuntimeError, match="broken"):
        bad.future.result(5)
    assert good.future.result(5) is True


def test_a_cancelled_await_drops_the_rest_of_its_job(engine):
    done, begun, gate = [], threading.Event(), threading.Event()

    def first():
        begun.set()
        gate.wait(5)

    async def scenario():
        job = engine.submit([first, *[partial(done.append, n) for n in range(5)]])
        waiting = asyncio.ensure_future(asyncio.wrap_future(job.future))
        await asyncio.to_thread(begun.wait, 5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0)  # the loop passes the cancellation on
        gate.set()
        await asyncio.wrap_future(engine.submit([lambda: None]).future)

    asyncio.run(scenario())
    assert done == []


def test_closing_cancels_what_waits():
    engine, gate = Engine(workers=1), threading.Event()
    running, waiting = engine.submit([lambda: gate.wait(5) and None]), engine.submit([lambda: None])
    gate.set()
    engine.close()
    assert running.future.done() or running.future.cancelled()
    assert waiting.future.done() or waiting.future.cancelled()
    with pytest.raises(ModelError, match="closed"):
        engine.submit([lambda: None])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_gets_an_engine_of_its_own():
    shared_engine().submit([lambda: None]).future.result(5)
    child = os.fork()
    if child == 0:
        ok = shared_engine().submit([lambda: None]).future.result(5)
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_there_is_a_worker_per_usable_core():
    assert Engine().workers == usable_cores() >= 1


def occupied(engine):
    """Keep the engine's one worker busy; return the job and the event that ends it."""
    begun, release = threading.Event(), threading.Event()

    def block():
        begun.set()
        release.wait(30)

    job = engine.submit([block])
    begun.wait(5)
    return job, release


def test_a_caller_leaves_at_its_deadline_although_every_worker_is_busy(engine):
    """Workers look at deadlines between tasks; the caller does not wait for them, and its work is dropped."""
    busy, release = occupied(engine)
    done = []
    asyncio.run(wait_for_job(engine.submit([partial(done.append, 1)], deadline=Deadline.after(0.02))))
    assert not busy.future.done(), "the worker is still busy: nobody waited for it"
    release.set()
    engine.submit([lambda: None]).future.result(5)
    assert done == []


def test_what_a_task_raises_reaches_the_caller_that_waits(engine):
    def fail():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(wait_for_job(engine.submit([fail], deadline=Deadline.never())))


def test_a_caller_that_is_cancelled_drops_its_work(engine):
    _, release = occupied(engine)
    done = []

    async def give_up():
        task = asyncio.create_task(wait_for_job(engine.submit([partial(done.append, 1)], deadline=Deadline.never())))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(give_up())
    release.set()
    engine.submit([lambda: None]).future.result(5)
    assert done == []
