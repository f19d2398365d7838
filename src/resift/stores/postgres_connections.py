"""A few PostgreSQL connections, lent to worker threads one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from resift.errors import require
from resift.forking import abandon, after_fork

T = TypeVar("T")


class Connections:
    """One connection per thread that asks at the same time; kept when done, dropped when broken."""

    def __init__(self, dsn: str, *, timeout_s: float) -> None:
        self._psycopg = require("psycopg", extra="postgres")
        self._dsn = dsn
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._closed = 0  # how often; what was lent out before is not taken back
        after_fork(self)

    def run(self, job: Callable[[Any], T]) -> T:
        """Run the job on a connection; blocks, so call it from a worker thread."""
        closed_before = self._closed
        connection = self._take()
        try:
            result = job(connection)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            keep = self._closed == closed_before
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()
        return result

    def close(self) -> None:
        """Close the idle connections now and those in use when they come back."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._closed += 1
        for connection in idle:
            connection.close()

    def forget_parent(self) -> None:
        """Open connections anew in a forked child; the parent goes on speaking through its own."""
        self._lock = threading.Lock()
        abandon(*self._idle)
        self._idle = []

    def _take(self) -> Any:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed:
                    return connection
        return self._psycopg.connect(
            self._dsn,
            autocommit=True,
            connect_timeout=max(2, int(self._timeout_s)),
            options=f"-c statement_timeout={int(self._timeout_s * 1000)}",
        )
