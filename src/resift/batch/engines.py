"""Engines that run shards: processes on this machine, or a Ray cluster."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from resift.batch.inputs import Shard, check_readable_by_workers
from resift.batch.shards import BatchWork, OnRows, ShardReport, describe_error, run_shard
from resift.errors import ResiftError, require
from resift.models.engine import usable_cores, use_workers
from resift.models.registry import ModelFiles, allowed_folders, restore_allowed

_RAY_ATTEMPTS = 3  # attempts to start a local Ray cluster. Ray's own timeout is too short for a busy machine.


@dataclass(eq=False)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    shard: Shard | None = None
    ready: bool = False


class LocalEngine:
    """Runs shards on processes that share the cores; a worker that dies is replaced and its shard retried."""

    name = "local"

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or usable_cores()

    def run(self, work: BatchWork, shards: Sequence[Shard], folder: Path, *, on_rows: OnRows) -> Iterator[ShardReport]:
        """Yield a report per shard when it is done. Raises if a shard fails as a whole."""
        check_readable_by_workers(shards)
        queue = deque(shards)
        workers: list[_Worker] = []
        try:
            while queue or any(worker.shard for worker in workers):
                self._assign(work, folder, workers, queue)
                yield from _collect_reports(workers, queue, on_rows)
        finally:
            _stop(workers)

    def _assign(self, work: BatchWork, folder: Path, workers: list[_Worker], queue: deque[Shard]) -> None:
        """Start workers while there are shards for them, and assign a shard to every idle worker."""
        busy = sum(worker.shard is not None for worker in workers)
        threads = max(1, usable_cores() // self.workers)
        while len(workers) < min(self.workers, len(queue) + busy):
            with suppress(BrokenPipeError):  # the worker was killed while starting: start another one
                # spawn, not fork: the child of a multithreaded process would inherit locks that are never released.
                context = multiprocessing.get_context("spawn")
                pipe, child_pipe = context.Pipe()
                arguments = (child_pipe, work, folder, threads, allowed_folders())
                process = context.Process(target=_run_worker, args=arguments, daemon=True)
                process.start()
                child_pipe.close()
                workers.append(_Worker(process, pipe))
        for worker in workers:
            if worker.shard is None and queue:
                worker.shard = queue.popleft()
                with suppress(OSError):  # the worker was killed while idle, which is noticed when its message is read
                    worker.pipe.send(worker.shard)


def _collect_reports(workers: list[_Worker], queue: deque[Shard], on_rows: OnRows) -> Iterator[ShardReport]:
    busy = [worker for worker in workers if worker.shard is not None]
    ready = wait([worker.pipe for worker in busy])
    for worker in busy:
        if worker.pipe not in ready:
            continue
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):  # the worker died: its shard goes to the front of the queue
            workers.remove(worker)
            worker.process.join()
            worker.pipe.close()
            # A negative exit code is a signal: the worker was killed rather than failing on its own.
            if not worker.ready and (worker.process.exitcode or 0) > 0:
                raise ResiftError(
                    "A worker process could not start. A script must call run_batch under "
                    "`if __name__ == '__main__':`, and the work class must be importable from a module."
                ) from None
            if worker.shard is not None:
                queue.appendleft(worker.shard)
            continue
        worker.ready = True
        if isinstance(message, int):
            on_rows(worker.shard.name if worker.shard else "", message)
        elif isinstance(message, ShardReport):
            worker.shard = None
            yield message
        elif message is not None:
            raise ResiftError(str(message))


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.pipe.close()
        if worker.shard is not None:
            worker.process.terminate()  # an unfinished shard leaves no output
    for worker in workers:
        worker.process.join(5)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join(5)


def _run_worker(pipe: Connection, work: BatchWork, folder: Path, threads: int, models: tuple[ModelFiles, ...]) -> None:
    """Run shards until the pipe is closed. Sends None when ready, then row counts, reports or errors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and closes the pipe
    parent = multiprocessing.parent_process()

    def exit_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
    use_workers(threads)
    restore_allowed(models)
    pipe.send(None)
    while True:
        try:
            shard = pipe.recv()
        except EOFError:
            return
        message: ShardReport | str
        try:
            message = run_shard(work, shard, folder, on_rows=pipe.send)
        except Exception as exc:
            message = f"{shard.describe()}: {describe_error(exc)}"
        try:
            pipe.send(message)
        except OSError:  # the parent is gone
            return


class RayEngine:
    """Runs shards on a Ray cluster: the one at `address`, the current one, or a new local one.

    Actors load their models once and read and write their own shards, so rows never pass through Ray. Every machine in
    the cluster must have access to the output folder.
    """

    name = "ray"

    def __init__(self, workers: int | None = None, *, address: str | None = None) -> None:
        self._ray = require("ray", extra="ray")
        self._address = address or os.environ.get("RAY_ADDRESS")
        self.workers = workers or usable_cores()
        self._requested_workers = workers
        self._owns_cluster = False

    def run(self, work: BatchWork, shards: Sequence[Shard], folder: Path, *, on_rows: OnRows) -> Iterator[ShardReport]:
        """Yield a report per shard when it is done. Raises if a shard fails as a whole."""
        check_readable_by_workers(shards)
        if not shards:
            return
        self._start()
        try:
            yield from self._run_shards(work, shards, folder.absolute())
        finally:
            if self._owns_cluster:
                self._ray.shutdown()

    def _start(self) -> None:
        if self._ray.is_initialized():
            return
        self._owns_cluster = True
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        _silence_ray_logging()
        for remaining in reversed(range(_RAY_ATTEMPTS)):
            try:
                with _silent_stderr():
                    self._ray.init(
                        # None would join another cluster on this machine.
                        address=self._address or "local",
                        num_cpus=None if self._address else self.workers,
                        include_dashboard=None if self._address else False,
                        log_to_driver=False,
                        logging_level=logging.ERROR,
                        configure_logging=False,
                    )
                return
            except Exception as exc:  # Ray raises various types of exceptions
                self._ray.shutdown()
                if not remaining or self._address:
                    raise ResiftError(f"Ray did not start: {str(exc).partition('. ')[0]}.") from exc

    def _run_shards(self, work: BatchWork, shards: Sequence[Shard], folder: Path) -> Iterator[ShardReport]:
        data = require("ray.data", extra="ray")
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.enable_operator_progress_bars = False
        context.max_errored_blocks = 0
        # Rows never pass through Ray, so there is no memory to monitor, and polling would take milliseconds.
        context.memory_usage_poll_interval_s = None
        context.issue_detectors_config.detectors = []
        _silence_ray_logging()  # ray.init changes the levels
        self.workers = self._requested_workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        items = data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards))
        results = items.map_batches(
            _ShardActor,
            batch_size=1,
            concurrency=min(self.workers, len(shards)),
            num_cpus=1,
            fn_constructor_kwargs={"work": work, "folder": str(folder), "models": allowed_folders()},
        )
        for row in results.iter_rows():
            if row["error"]:
                raise ResiftError(str(row["error"]))
            yield row["report"]


def _silence_ray_logging() -> None:
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Hide messages that C++ code writes directly to the terminal, bypassing Python's logging."""
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


class _ShardActor:
    """A process in the cluster that runs shards on one core."""

    def __init__(self, work: BatchWork, folder: str, models: tuple[ModelFiles, ...]) -> None:
        use_workers(1)
        restore_allowed(models)
        self._work = work
        self._folder = Path(folder)

    def __call__(self, batch: Mapping[str, Sequence[Shard]]) -> dict[str, list[ShardReport | str | None]]:
        [shard] = batch["shard"]
        try:
            return {"report": [run_shard(self._work, shard, self._folder)], "error": [""]}
        except Exception as exc:
            return {"report": [None], "error": [f"{shard.describe()}: {describe_error(exc)}"]}
