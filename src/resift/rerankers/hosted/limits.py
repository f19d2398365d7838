"""How many requests may be on their way at once: one count per provider for the whole process."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from types import TracebackType


class _Waiter:
    __slots__ = ("future", "granted", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.granted = False


class ConcurrencyLimit:
    """A semaphore that tasks of several event loops and threads share; first come, first served.

    asyncio.Semaphore belongs to one loop, and a provider's limit does not care about our loops.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._in_use = 0
        self._waiting: deque[_Waiter] = deque()
        self._lock = threading.Lock()

    @property
    def in_use(self) -> int:
        """How many hold a permit now."""
        return self._in_use

    @property
    def capacity(self) -> int:
        """How many may hold one."""
        return self._capacity

    def narrow(self, capacity: int) -> None:
        """Lower the limit; a higher number changes nothing."""
        with self._lock:
            self._capacity = min(self._capacity, capacity)

    async def __aenter__(self) -> None:
        with self._lock:
            if self._in_use < self._capacity and not self._waiting:
                self._in_use += 1
                return
            waiter = _Waiter()
            self._waiting.append(waiter)
        try:
            await waiter.future
        except BaseException:
            self._give_up(waiter)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._in_use -= 1
            self._hand_on()

    def _give_up(self, waiter: _Waiter) -> None:
        with self._lock:
            # The permit is owned from the moment of the grant, whether or not the task woke up for it.
            if waiter.granted:
                self._in_use -= 1
            else:
                self._waiting.remove(waiter)
            self._hand_on()

    def _hand_on(self) -> None:
        while self._waiting and self._in_use < self._capacity:
            waiter = self._waiting.popleft()
            try:
                waiter.loop.call_soon_threadsafe(_wake, waiter.future)
            except RuntimeError:
                waiter.granted = False
                continue  # its loop was closed under it
            waiter.granted = True
            self._in_use += 1


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_limits: dict[tuple[str, str], ConcurrencyLimit] = {}
_lock = threading.Lock()


def shared_limit(provider: str, origin: str, capacity: int) -> ConcurrencyLimit:
    """Return the one limit of that provider; where instances ask for different ones, the lowest holds."""
    with _lock:
        limit = _limits.setdefault((provider, origin), ConcurrencyLimit(capacity))
    limit.narrow(capacity)
    return limit
