"""Shards done by processes of this machine. A worker that dies is replaced, and its shard tried again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from resift.batch.inputs import Shard, check_shared
from resift.batch.shards import OnRows, ShardReport, failure_of, run_shard
from resift.batch.work import BatchWork
from resift.errors import ResiftError
from resift.models.engine import usable_cores, use_workers
from resift.models.registry import ModelFiles, allowed_folders, restore_allowed


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Connection
    shard: Shard | None = None
    ready: bool = False


class LocalEngine:
    """Runs shards on `workers` processes, each with an equal part of the cores."""

    name = "local"

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or usable_cores()

    def run(
        self, work: BatchWork, shards: Sequence[Shard], folder: Path, *, on_rows: OnRows
    ) -> Iterator[ShardReport]:
        """Yield a report per shard as each is done; a shard that fails otherwise than by its rows raises."""
        check_shared(shards)
        todo = deque(shards)
        workers: list[_Worker] = []
        try:
            while todo or any(worker.shard for worker in workers):
                self._feed(work, folder, workers, todo)
                yield from _collected(workers, todo, on_rows)
        finally:
            _stop(workers)

    def _feed(self, work: BatchWork, folder: Path, workers: list[_Worker], todo: deque[Shard]) -> None:
        """Give every idle worker a shard; start workers while there are shards for them."""
        busy = sum(worker.shard is not None for worker in workers)
        while len(workers) < min(self.workers, len(todo) + busy):
            with suppress(BrokenPipeError):  # killed in its first moment: another one
                workers.append(_started(work, folder, threads=max(1, usable_cores() // self.workers)))
        for worker in workers:
            if worker.shard is None and todo:
                worker.shard = todo.popleft()
                with suppress(OSError):  # killed while it was idle: found when its answer is read
                    worker.pipe.send(worker.shard)


def _collected(workers: list[_Worker], todo: deque[Shard], on_rows: OnRows) -> Iterator[ShardReport]:
    busy = [worker for worker in workers if worker.shard is not None]
    ready = wait([worker.pipe for worker in busy])
    for worker in [one for one in busy if one.pipe in ready]:
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            _bury(worker, workers, todo)
            continue
        worker.ready = True
        if isinstance(answer, int):
            on_rows(worker.shard.name if worker.shard else "", answer)
        elif isinstance(answer, ShardReport):
            worker.shard = None
            yield answer
        elif answer is not None:
            raise ResiftError(str(answer))


def _bury(worker: _Worker, workers: list[_Worker], todo: deque[Shard]) -> None:
    """Forget a dead worker; its shard goes first again."""
    workers.remove(worker)
    worker.process.join()
    worker.pipe.close()
    # One that was killed by a signal did not fail by itself, however young it was.
    if not worker.ready and worker.process.exitcode > 0:
        raise ResiftError(
            "A worker process could not start. A script that calls run_batch needs its own call under "
            "`if __name__ == '__main__':`, and the kind of work must be importable from a module."
        )
    if worker.shard is not None:
        todo.appendleft(worker.shard)


def _started(work: BatchWork, folder: Path, *, threads: int) -> _Worker:
    # spawn, not fork: a child of a process with threads and models would inherit locks that nobody frees.
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(
        target=_serve, args=(theirs, work, folder, threads, allowed_folders()), daemon=True
    )
    process.start()
    theirs.close()
    return _Worker(process, mine)


def _serve(
    pipe: Connection, work: BatchWork, folder: Path, threads: int, models: tuple[ModelFiles, ...]
) -> None:
    """Do shards until the pipe is closed. Sends None when ready, rows done, and a report or an error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes the pipe
    _die_with_parent()
    use_workers(threads)
    restore_allowed(models)
    pipe.send(None)
    while True:
        try:
            shard = pipe.recv()
        except EOFError:
            return
        try:
            answer: Any = run_shard(work, shard, folder, on_rows=pipe.send)
        except Exception as exc:
            answer = failure_of(shard, exc)
        try:
            pipe.send(answer)
        except OSError:  # nobody is there any more
            return


def _die_with_parent() -> None:
    """End this process soon after its parent, killed or not: nobody would hear of what it does."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.pipe.close()
        if worker.shard is not None:
            worker.process.terminate()  # in the middle of a shard, of which nothing is to be seen
    for worker in workers:
        worker.process.join(5)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join(5)
