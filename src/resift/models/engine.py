"""Worker threads for forward passes: one row of tokens at a time, fair among callers, deadlines between rows.

One row per run is the fastest layout on a CPU with int8 weights and the only one whose scores do not depend
on the neighbours (activations are quantised per tensor). The graph runs on one thread per worker, so as many
workers as cores keep the machine busy without any thread waiting for another.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from resift.deadline import Deadline
from resift.errors import ModelError
from resift.models.usable_cores import usable_cores

HANDOVER_S = 0.02
"""How long before its deadline a caller takes what there is, at most: waking up takes time."""

Task = Callable[[], "Sequence[Task] | None"]
"""One uninterruptible piece of work; it may return further tasks of the same job, to be done next."""

OLDEST_EVERY = 4
"""Every so many turns the oldest job gets one, however many tasks it has left."""


@dataclass(slots=True, eq=False, repr=False)
class Job:
    """The tasks of one call. Ends when all are done, one failed, or the deadline passed."""

    tasks: deque[Task]
    deadline: Deadline
    future: Future[bool] = field(default_factory=Future)
    running: int = 0
    over: bool = False
    error: BaseException | None = None
    complete: bool = True

    def stop(self) -> None:
        """Drop what has not begun."""
        self.tasks.clear()
        self.over = True


class Engine:
    """A pool of workers that take tasks of the job with fewest left, and now and then of the oldest."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or usable_cores()
        self._jobs: deque[Job] = deque()
        self._wake = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._turns = 0
        self._closed = False

    def submit(self, tasks: Sequence[Task], *, deadline: Deadline | None = None) -> Job:
        """Queue the tasks; the job's future says True when all were done, False when the deadline cut it."""
        job = Job(deque(tasks), deadline or Deadline.never())
        if not tasks:
            job.future.set_result(True)
            return job
        # A caller that stopped waiting frees the workers from what it has not begun.
        job.future.add_done_callback(lambda future: self._forget(job) if future.cancelled() else None)
        with self._wake:
            if self._closed:
                raise ModelError("The engine is closed, because the interpreter is exiting.")
            self._start()
            self._jobs.append(job)
            self._wake.notify(min(len(tasks), self.workers))
        return job

    async def run(self, tasks: Sequence[Task], *, deadline: Deadline) -> None:
        """Do the tasks while this loop goes on, until the deadline at the latest."""
        await until_deadline(self.submit(tasks, deadline=deadline))

    def close(self, *, wait_s: float = 10.0) -> None:
        """Drop waiting work and let running tasks end.

        A long row takes seconds in portable C on a busy core. An interpreter that ends under it frees the
        memory that it reads, and the process dies by a signal.
        """
        with self._wake:
            self._closed = True
            dropped, self._jobs = list(self._jobs), deque()
            self._wake.notify_all()
        for job in dropped:
            job.stop()
            job.future.cancel()
        for thread in self._threads:
            thread.join(wait_s)

    def _start(self) -> None:
        # Started with the first job and not at import: a process that only imports owns no threads.
        if self._threads:
            return
        for number in range(self.workers):
            # Daemons: a pass that hangs must not keep the process from ending.
            thread = threading.Thread(target=self._work, name=f"resift-engine-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._jobs and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                taken = self._take()
            if taken is not None:
                self._run(*taken)

    def _take(self) -> tuple[Job, Task] | None:
        job = self._next()
        if job.tasks and job.deadline.expired:
            job.complete = False
            job.stop()
        task = job.tasks.popleft() if job.tasks else None
        if job.tasks:
            self._wake.notify()
        else:
            self._jobs.remove(job)
        if task is None:
            self._resolve(job)
            return None
        job.running += 1
        return job, task

    def _next(self) -> Job:
        """Return the job whose turn it is.

        A caller with ten documents must not wait for several with a thousand each, so the job with fewest
        tasks left goes first, among equals the one that came first. Every fourth turn is the oldest job's,
        so that a large one ends however many small ones come. A job whose time is over is answered at once.
        """
        self._turns += 1
        late = next((job for job in self._jobs if job.deadline.expired), None)
        if late is not None:
            return late
        if self._turns % OLDEST_EVERY == 0:
            return self._jobs[0]
        return min(self._jobs, key=lambda job: len(job.tasks))

    def _run(self, job: Job, task: Task) -> None:
        more: list[Task] = []
        try:
            more = list(task() or ())
        except BaseException as exc:
            # The caller gets it; a worker never dies of a task.
            job.error = job.error or exc
        with self._wake:
            job.running -= 1
            if job.error is not None:
                job.stop()
            elif more and not job.over:
                waiting = job in self._jobs
                # In front: a text that was begun is finished before the next one is.
                job.tasks.extendleft(reversed(more))
                if not waiting:
                    self._jobs.append(job)
                self._wake.notify(len(more))
            self._resolve(job)

    def _resolve(self, job: Job) -> None:
        if job.tasks or job.running or job.future.done():
            return
        with suppress(InvalidStateError):  # cancelled a moment ago
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.complete)

    def _forget(self, job: Job) -> None:
        with self._wake:
            job.stop()
            if job in self._jobs:
                self._jobs.remove(job)


async def until_deadline(job: Job) -> None:
    """Wait for a job, at its deadline no longer; what was not begun by then is dropped.

    Workers look at deadlines only between two tasks, and a busy engine comes round late: a caller that
    waited for them would overshoot by as many tasks as others have waiting.
    """
    done = asyncio.wrap_future(job.future)
    early_s = min(HANDOVER_S, 0.1 * job.deadline.remaining_s())
    try:
        await asyncio.wait({done}, timeout=job.deadline.reserve(early_s).timeout_s)
    finally:
        if not done.done():
            job.future.cancel()
    if done.done():
        done.result()


_lock = threading.Lock()
_engine: Engine | None = None


def shared_engine() -> Engine:
    """Return this process's engine; a forked child gets its own."""
    global _engine
    with _lock:
        if _engine is None:
            _engine = Engine()
        return _engine


def use_workers(count: int) -> None:
    """Let this process's engine have so many workers: for processes that share a machine's cores."""
    global _engine
    with _lock:
        if _engine is not None:
            _engine.close()
        _engine = Engine(count)


def _close_shared() -> None:
    # Threads inside the runtime must not be torn down by the interpreter's exit.
    if _engine is not None:
        _engine.close()


def _after_fork() -> None:
    global _engine, _lock
    _lock = threading.Lock()
    _engine = None


atexit.register(_close_shared)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
