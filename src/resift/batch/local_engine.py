"""Shards done by processes of this machine. A worker that dies is replaced, and its shard tried again."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from resift.batch.inputs import Shard
from resift.batch.shards import ShardReport, run_shard
from resift.batch.work import BatchWork, reason_of
from resift.errors import ResiftError
from resift.models.engine import use_workers
from resift.models.usable_cores import usable_cores

MOST_DEATHS = 200
"""How many workers may die on one shard: each deadly row costs a few."""


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Connection
    shard: Shard | None = None


class LocalEngine:
    """Runs shards on `workers` processes, each with an equal part of the cores."""

    name = "local"

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or usable_cores()

    def run(self, work: BatchWork, shards: Sequence[Shard], folder: Path) -> Iterator[ShardReport]:
        """Yield a report per shard as each is done; a shard that fails otherwise than by its rows raises."""
        todo = deque(shards)
        deaths: Counter[str] = Counter()
        workers: list[_Worker] = []
        try:
            while todo or any(worker.shard for worker in workers):
                self._feed(work, folder, workers, todo)
                yield from _collected(workers, todo, deaths)
        finally:
            _stop(workers)

    def _feed(self, work: BatchWork, folder: Path, workers: list[_Worker], todo: deque[Shard]) -> None:
        """Give every idle worker a shard; start workers while there are shards for them."""
        busy = sum(worker.shard is not None for worker in workers)
        while len(workers) < min(self.workers, len(todo) + busy):
            workers.append(_started(work, folder, threads=max(1, usable_cores() // self.workers)))
        for worker in workers:
            if worker.shard is None and todo:
                worker.shard = todo.popleft()
                worker.pipe.send(worker.shard)


def _collected(workers: list[_Worker], todo: deque[Shard], deaths: Counter[str]) -> Iterator[ShardReport]:
    busy = [worker for worker in workers if worker.shard is not None]
    ready = wait([worker.pipe for worker in busy])
    for worker in [one for one in busy if one.pipe in ready]:
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            _bury(worker, workers, todo, deaths)
            continue
        if not isinstance(answer, ShardReport):
            raise ResiftError(str(answer))
        worker.shard = None
        yield answer


def _bury(worker: _Worker, workers: list[_Worker], todo: deque[Shard], deaths: Counter[str]) -> None:
    """Forget a dead worker; its shard goes first again."""
    workers.remove(worker)
    worker.process.join()
    worker.pipe.close()
    if worker.shard is None:
        return
    deaths[worker.shard.name] += 1
    if deaths[worker.shard.name] > MOST_DEATHS:
        raise ResiftError(
            f"{worker.shard.name}: {MOST_DEATHS} workers died on it; look at the machine's memory."
        )
    todo.appendleft(worker.shard)


def _started(work: BatchWork, folder: Path, *, threads: int) -> _Worker:
    # spawn, not fork: a child of a process with threads and models would inherit locks that nobody frees.
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work, folder, threads), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, mine)


def _serve(pipe: Connection, work: BatchWork, folder: Path, threads: int) -> None:
    """Do shards until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes the pipe
    use_workers(threads)
    while True:
        try:
            shard = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(run_shard(work, shard, folder))
        except Exception as exc:
            pipe.send(f"{shard.name}: {reason_of(exc)}")


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.pipe.close()
    for worker in workers:
        worker.process.join(5)
        if worker.process.is_alive():
            worker.process.terminate()
            worker.process.join(5)
