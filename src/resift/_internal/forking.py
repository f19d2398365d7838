"""What a forked child must begin anew: locks that other threads held, and connections of the parent.

Servers fork. The child has a copy of every object but only the thread that forked, so a lock held by
another thread at that moment is never released there.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Protocol


class ForkAware(Protocol):
    """Something that a forked child cannot take over as it is."""

    def forget_parent(self) -> None:
        """Replace locks, threads and connections; called in the child before anything else runs."""


class ForkSafeLock:
    """A lock that is free in a forked child, whoever held it in the parent."""

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

    def forget_parent(self) -> None:
        """Take a new lock."""
        self._lock = threading.Lock()


_known: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_abandoned: list[object] = []


def after_fork(one: ForkAware) -> None:
    """Have `forget_parent` called in every forked child for as long as the object lives."""
    _known.add(one)


def abandon(*connections: object) -> None:
    """Keep what belongs to the parent alive and untouched: closing it here would speak for the parent."""
    _abandoned.extend(connections)


def _in_child() -> None:
    for one in list(_known):
        one.forget_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
