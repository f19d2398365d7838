"""Limit how many searches with a deadline use the cores of this machine at the same time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import suppress

from resift._internal.forking import after_fork
from resift.deadline import Deadline
from resift.models.engine import usable_cores

NEW_TIME_SHARE = 0.1  # share of the last search in the moving average of the time that a slot is held


class Slot:
    """The place of one search, from its start until it has candidates; `release` may be called twice."""

    def __init__(self, slots: SearchSlots, deadline: Deadline) -> None:
        self.slots = slots
        self.deadline = deadline
        self.started: float | None = None

    def release(self) -> None:
        """Free the slot for the next search."""
        if self.started is not None:
            held_s, self.started = time.monotonic() - self.started, None
            self.slots.free(held_s)


class SearchSlots:
    """One slot per core; a search without a free slot waits, at most until its deadline.

    If all searches ran at once, each would delay the others and all would miss their deadlines. Waiting
    searches start in order of arrival, except those that have less time left than a search usually takes.
    """

    def __init__(self, count: int | None = None) -> None:
        self._limit = count
        self.reset_after_fork()
        after_fork(self)

    def reset_after_fork(self) -> None:
        """Free all slots in a forked child, which runs none of the parent's searches."""
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Slot, asyncio.AbstractEventLoop, asyncio.Event]] = deque()
        self._used = 0
        self._usual_s = 0.0

    async def acquire(self, deadline: Deadline) -> Slot | None:
        """Return a slot, or None if no slot was free before the deadline."""
        slot = Slot(self, deadline)
        with self._lock:
            if self._limit is None:
                self._limit = usable_cores()
            if self._used < self._limit:
                self._used += 1
                slot.started = time.monotonic()
                return slot
            started = asyncio.Event()
            waiter = slot, asyncio.get_running_loop(), started
            self._waiting.append(waiter)
        cancelled = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline.timeout_s):
                    await started.wait()
            cancelled = False
        finally:
            with self._lock, suppress(ValueError):  # it is no longer waiting if it has a slot
                self._waiting.remove(waiter)
            if cancelled:
                slot.release()
        return None if slot.started is None else slot

    def free(self, held_s: float) -> None:
        """Start the next search in a slot that was held for this many seconds."""
        with self._lock:
            self._usual_s += NEW_TIME_SHARE * (held_s - self._usual_s)
            for waiter in self._waiting:
                slot, loop, started = waiter
                if slot.deadline.remaining_s() >= self._usual_s and not loop.is_closed():
                    self._waiting.remove(waiter)
                    slot.started = time.monotonic()
                    loop.call_soon_threadsafe(started.set)
                    return
            self._used -= 1


search_slots = SearchSlots()  # the slots of this process, for all pipelines whose stores use its cores
