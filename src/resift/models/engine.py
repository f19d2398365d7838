"""Worker threads for forward passes: one row of tokens at a time, fair scheduling, deadline checks between rows.

Single rows are the fastest layout on a CPU with int8 weights, and a score then does not depend on other rows.
"""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from resift._internal.forking import ForkSafeLock
from resift.deadline import Deadline
from resift.errors import ModelError

HANDOVER_S = 0.02  # a caller collects its results at most this long before its deadline, because waking up takes time

OLDEST_JOB_EVERY = 4  # one turn in this many goes to the oldest job, regardless of how many tasks it has left

_CLOSED = "The engine is closed, because the interpreter is exiting."

Task = Callable[[], "Sequence[Task] | None"]
"""One uninterruptible piece of work. It may return more tasks of the same job, which run next."""


@dataclass(slots=True, eq=False, repr=False)
class Job:
    """The tasks of one call. A job ends when all tasks are done, one has failed, or the deadline has passed."""

    tasks: deque[Task]
    deadline: Deadline
    future: Future[bool] = field(default_factory=Future)
    running: int = 0
    stopped: bool = False
    error: BaseException | None = None
    complete: bool = True

    def stop(self) -> None:
        """Drop all tasks that have not started yet."""
        self.tasks.clear()
        self.stopped = True


class Engine:
    """A pool of workers. The job with the fewest tasks left goes first, except that the oldest job gets some turns."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or usable_cores()
        self._jobs: deque[Job] = deque()
        self._wake = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._turns = 0
        self._closed = False

    def submit(self, tasks: Sequence[Task], *, deadline: Deadline | None = None) -> Job:
        """Queue the tasks. The job's future is True if all were done, or False if the deadline passed first."""
        job = Job(deque(tasks), deadline or Deadline.never())
        if not tasks:
            job.future.set_result(True)
            return job
        # If the caller stops waiting, the tasks that have not started are dropped.
        job.future.add_done_callback(lambda future: self._cancel(job) if future.cancelled() else None)
        with self._wake:
            if self._closed:
                raise ModelError(_CLOSED)
            # Threads start with the first job, so that importing the module creates none.
            if not self._threads:
                names = [f"resift-engine-{number}" for number in range(self.workers)]
                # Daemon threads, so that a run that hangs cannot keep the process alive.
                self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
                for thread in self._threads:
                    thread.start()
            self._jobs.append(job)
            self._wake.notify(min(len(tasks), self.workers))
        return job

    def close(self, *, wait_s: float = 10.0) -> None:
        """Drop waiting tasks, and wait for running ones, because the interpreter would free memory that they read."""
        with self._wake:
            self._closed = True
            dropped, self._jobs = list(self._jobs), deque()
            self._wake.notify_all()
        for job in dropped:
            job.stop()
            # Not cancelled, because a CancelledError would end the caller's thread with a traceback.
            with suppress(InvalidStateError):
                job.future.set_exception(ModelError(_CLOSED))
        for thread in self._threads:
            thread.join(wait_s)

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._jobs and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                next_task = self._take_task()
            if next_task is not None:
                self._run_task(*next_task)

    def _take_task(self) -> tuple[Job, Task] | None:
        """Take a task of a job past its deadline, to resolve it, or else of the job with the fewest tasks left.

        Every fourth turn goes to the oldest job, so that a large job finishes even while small ones keep arriving.
        """
        self._turns += 1
        job = next((job for job in self._jobs if job.deadline.expired), None)
        if job is None and self._turns % OLDEST_JOB_EVERY == 0:
            job = self._jobs[0]
        job = job or min(self._jobs, key=lambda job: len(job.tasks))
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

    def _run_task(self, job: Job, task: Task) -> None:
        more: list[Task] = []
        try:
            more = list(task() or ())
        except BaseException as exc:
            # The error is raised in the caller; a task never kills its worker.
            job.error = job.error or exc
        with self._wake:
            job.running -= 1
            if job.error is not None:
                job.stop()
            elif more and not job.stopped:
                is_queued = job in self._jobs
                # The new tasks go to the front, to finish one text before starting the next.
                job.tasks.extendleft(reversed(more))
                if not is_queued:
                    self._jobs.append(job)
                self._wake.notify(len(more))
            self._resolve(job)

    def _resolve(self, job: Job) -> None:
        if job.tasks or job.running or job.future.done():
            return
        with suppress(InvalidStateError):  # the future was cancelled in the meantime
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.complete)

    def _cancel(self, job: Job) -> None:
        with self._wake:
            job.stop()
            if job in self._jobs:
                self._jobs.remove(job)


async def wait_for_job(job: Job) -> None:
    """Wait for a job until its deadline, which workers check only between tasks; drop tasks that have not started."""
    done = asyncio.wrap_future(job.future)
    handover_s = min(HANDOVER_S, 0.1 * job.deadline.remaining_s())
    try:
        finished, _ = await asyncio.wait({done}, timeout=job.deadline.reserve(handover_s).timeout_s)
    finally:
        if not done.done():
            job.future.cancel()
    if finished:  # since Python 3.14, cancelling the job also completes `done` at once
        done.result()


_lock = ForkSafeLock()
_engine: Engine | None = None


def shared_engine() -> Engine:
    """Return the engine of this process; a forked child creates its own."""
    global _engine
    with _lock:
        if _engine is None:
            _engine = Engine()
        return _engine


def use_workers(count: int) -> None:
    """Replace this process's engine with one of `count` workers, for processes that share a machine's cores."""
    global _engine
    with _lock:
        if _engine is not None:
            _engine.close()
        _engine = Engine(count)


def _close_shared_engine() -> None:
    # The interpreter must not tear down threads during a forward pass.
    if _engine is not None:
        _engine.close()


def _reset_after_fork() -> None:
    global _engine
    _engine = None


atexit.register(_close_shared_engine)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of cores this process may use, at least 1, by CPU affinity and container quota."""
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min([cores, *(math.ceil(quota) for quota in _container_quotas(root))]))


def _container_quotas(root: Path) -> Iterator[float]:
    """Yield the core limit of each cgroup (version 1 or 2) of this process, including parent groups."""
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        own_group = PurePosixPath("/" + path.lstrip("/"))
        version_1 = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if "cpu" in controllers.split(",") else ()
        for group in (own_group, *own_group.parents):
            folder = root / "sys/fs/cgroup" / ("" if number == "0" else controllers) / str(group).lstrip("/")
            limits = " ".join(_read_text(folder / name) for name in (("cpu.max",) if number == "0" else version_1))
            with suppress(ValueError, ZeroDivisionError):  # without a limit, the quota is "max" or -1
                quota, period = map(int, limits.split()[:2])
                if quota / period > 0:
                    yield quota / period


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
