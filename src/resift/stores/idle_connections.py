"""Connections that nobody uses at the moment: lent to one thread at a time, none of them across a fork."""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

from resift._internal.forking import abandon, after_fork


class Closable(Protocol):
    """An open connection."""

    def close(self) -> None:
        """Give up the connection."""


C = TypeVar("C", bound=Closable)


class IdleConnections(Generic[C]):
    """Keeps connections for the next caller until they are dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[C] = []
        self.dropped = 0
        """How often all were dropped: what was lent out before that is not taken back."""
        after_fork(self)

    def take(self) -> C | None:
        """Return one of them, or None where there is none; look whether it still works."""
        with self._lock:
            return self._idle.pop() if self._idle else None

    def give_back(self, connection: C, *, dropped: int) -> None:
        """Keep a connection; `dropped` is what it was when the connection was lent."""
        with self._lock:
            keep = self.dropped == dropped
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    def drop(self) -> None:
        """Close the idle connections now, and those in use when they come back."""
        with self._lock:
            idle, self._idle = self._idle, []
            self.dropped += 1
        for connection in idle:
            connection.close()

    def forget_parent(self) -> None:
        """Begin with none in a forked child; the parent goes on speaking through its own."""
        self._lock = threading.Lock()
        abandon(*self._idle)
        self._idle = []
