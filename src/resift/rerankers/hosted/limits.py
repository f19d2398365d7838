"""How many requests may be on their way at once: one count per provider for the whole process."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType

from resift._internal.forking import ForkSafeLock, after_fork

SWEEP_S = 0.25
"""How often a request that waits looks for permits whose event loop was closed in mid-call."""


class Permit:
    """One request's right to be on its way: `async with limit.permit():`."""

    __slots__ = ("_limit", "granted", "loop")

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self._limit = limit
        self.loop: asyncio.AbstractEventLoop | None = None
        self.granted: asyncio.Future[None] | None = None

    async def __aenter__(self) -> None:
        await self._limit._acquire(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limit._release(self)

    @property
    def lost(self) -> bool:
        """Whether nobody can give this permit back: its event loop is closed."""
        return self.loop is not None and self.loop.is_closed()


class ConcurrencyLimit:
    """A semaphore that tasks of several event loops and threads share; first come, first served.

    asyncio.Semaphore belongs to one loop, and a provider's limit does not care about our loops. A loop
    that is closed in mid-call never runs the end of its tasks: their permits are taken back.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held: set[Permit] = set()
        self._waiting: deque[Permit] = deque()
        self._lock = ForkSafeLock()
        after_fork(self)

    @property
    def in_use(self) -> int:
        """How many hold a permit now."""
        with self._lock:
            self._take_back_lost()
            return len(self._held)

    @property
    def capacity(self) -> int:
        """How many may hold one."""
        return self._capacity

    def narrow(self, capacity: int) -> None:
        """Lower the limit; a higher number changes nothing."""
        with self._lock:
            self._capacity = min(self._capacity, capacity)

    def permit(self) -> Permit:
        """Return a permit to enter; entering waits until there is room."""
        return Permit(self)

    def forget_parent(self) -> None:
        """Start from zero in a forked child: the parent's requests are not on their way here."""
        self._held = set()
        self._waiting = deque()

    async def _acquire(self, permit: Permit) -> None:
        permit.loop = asyncio.get_running_loop()
        with self._lock:
            self._take_back_lost()
            # Nobody overtakes those who wait.
            if len(self._held) < self._capacity and not self._waiting:
                self._held.add(permit)
                return
            permit.granted = permit.loop.create_future()
            self._waiting.append(permit)
        try:
            # Looks again from time to time: a permit of a closed loop is given back by nobody.
            while not permit.granted.done():
                await asyncio.wait({permit.granted}, timeout=SWEEP_S)
                self._hand_on()
        except BaseException:
            self._release(permit)
            raise

    def _release(self, permit: Permit) -> None:
        with self._lock:
            # Held from the moment of the grant, whether or not the task woke up for it.
            self._held.discard(permit)
            if permit in self._waiting:
                self._waiting.remove(permit)
        self._hand_on()

    def _hand_on(self) -> None:
        with self._lock:
            self._take_back_lost()
            while self._waiting and len(self._held) < self._capacity:
                permit = self._waiting.popleft()
                if _wake(permit):
                    self._held.add(permit)

    def _take_back_lost(self) -> None:
        lost = [permit for permit in self._held if permit.lost]
        self._held.difference_update(lost)


def _wake(permit: Permit) -> bool:
    """Tell the waiting task that it may go; False where its loop was closed under it."""
    if permit.loop is None:
        return False
    try:
        permit.loop.call_soon_threadsafe(_grant, permit)
    except RuntimeError:
        return False
    return True


def _grant(permit: Permit) -> None:
    if permit.granted is not None and not permit.granted.done():
        permit.granted.set_result(None)


_limits: dict[tuple[str, str], ConcurrencyLimit] = {}
_lock = ForkSafeLock()


def shared_limit(provider: str, origin: str, capacity: int) -> ConcurrencyLimit:
    """Return the one limit of that provider; where instances ask for different ones, the lowest holds."""
    with _lock:
        limit = _limits.setdefault((provider, origin), ConcurrencyLimit(capacity))
    limit.narrow(capacity)
    return limit
