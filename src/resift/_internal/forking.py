"""Reset locks, threads and connections in forked child processes.

Servers fork. The child gets a copy of every object but only the thread that forked, so a lock held by
another thread at that moment is never released in the child.
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
        """Replace locks, threads and connections. Called in the child before any other code runs."""


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
        """Replace the lock with a new one."""
        self._lock = threading.Lock()


_targets: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_leaked: list[object] = []


def after_fork(target: ForkAware) -> None:
    """Call the object's `reset_after_fork` in every forked child, for as long as the object exists."""
    _targets.add(target)


def leak(*connections: object) -> None:
    """Keep the parent's connections alive in the child: closing them would end the parent's sessions."""
    _leaked.extend(connections)


def _reset_child() -> None:
    for target in list(_targets):
        target.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_child)
