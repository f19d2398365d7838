"""Reset locks, threads and connections in forked child processes.

Servers fork. The child has a copy of every object but only the thread that forked, so a lock that another
thread held at that moment is never released there.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Protocol


class ForkAware(Protocol):
    """An object whose state must not be shared with a forked child."""

    def reset_after_fork(self) -> None:
        """Replace locks, threads and connections; called in the child before anything else runs."""


class ForkSafeLock:
    """A lock that is free in a forked child, even if it was held in the parent."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        after_fork(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def reset_after_fork(self) -> None:
        """Start with a new lock."""
        self._lock = threading.Lock()


_registered: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_leaked: list[object] = []


def after_fork(target: ForkAware) -> None:
    """Call the object's `reset_after_fork` in every forked child as long as the object lives."""
    _registered.add(target)


def leak(*connections: object) -> None:
    """Keep connections of the parent alive in the child: closing them would end the parent's sessions."""
    _leaked.extend(connections)


def _reset_child() -> None:
    for target in list(_registered):
        target.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_child)
