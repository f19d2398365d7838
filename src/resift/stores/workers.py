"""Worker threads that belong to one store, so that a store that hangs holds up nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from resift._internal.forking import after_fork

T = TypeVar("T")


class Workers:
    """A few threads, made on first use and again after `close` or in a forked child; further work waits.

    Work that is still waiting when its caller gives up is never begun.
    """

    def __init__(self, name: str, *, threads: int) -> None:
        self._name = name
        self._threads = threads
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        after_fork(self)

    async def run(self, job: Callable[[], T]) -> T:
        """Run blocking work and return its result."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=f"resift-{self._name}")
            future = asyncio.get_running_loop().run_in_executor(self._pool, job)
        return await future

    def close(self, *, wait: bool = False) -> None:
        """Let the threads end once they are done; work that waits is dropped, or finished with `wait`."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=wait, cancel_futures=not wait)

    def forget_parent(self) -> None:
        """Make new threads in a forked child; the parent's are not here."""
        self._lock = threading.Lock()
        self._pool = None
