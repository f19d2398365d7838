"""Waiting with an end: work that is late or will not stop is left behind, never waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from resift.deadline import Deadline
from resift.errors import ResiftError

T = TypeVar("T")


class DeadlinePassed(TimeoutError):
    """The deadline passed while the work was still going on. Never leaves retrieval."""


async def run_until(deadline: Deadline, work: Coroutine[object, object, T]) -> T:
    """Await the work until the deadline, then let go of it and raise DeadlinePassed.

    Raises ResiftError for work that raises CancelledError although nobody cancelled it.
    Work that swallows its cancellation, or waits for a thread that cannot be stopped, does not hold
    the caller. Work that never suspends is finished even when no time is left.
    """
    task = asyncio.ensure_future(work)
    try:
        # Not wait_for: that one waits until the cancelled work has ended, however long it takes.
        await asyncio.wait({task}, timeout=deadline.timeout_s)
    except asyncio.CancelledError:
        _abandon_task(task)
        raise
    if not task.done():
        _abandon_task(task)
        raise DeadlinePassed
    if task.cancelled():
        raise ResiftError("cancelled itself")
    return task.result()


def _abandon_task(task: asyncio.Future[Any]) -> None:
    # Reading the outcome keeps asyncio from reporting an exception that nobody awaited.
    task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    task.cancel()
