"""A few PostgreSQL connections, lent to worker threads one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from resift.errors import require
from resift.stores.idle_connections import IdleConnections

T = TypeVar("T")


class Connections:
    """One connection per thread that asks at the same time; kept when done, dropped when broken."""

    def __init__(self, dsn: str, *, timeout_s: float) -> None:
        self._psycopg = require("psycopg", extra="postgres")
        self._dsn = dsn
        self._timeout_s = timeout_s
        self._idle: IdleConnections[Any] = IdleConnections()

    def run(self, job: Callable[[Any], T]) -> T:
        """Run the job on a connection; blocks, so call it from a worker thread."""
        dropped = self._idle.dropped
        connection = self._take()
        try:
            result = job(connection)
        except BaseException:
            connection.close()
            raise
        self._idle.give_back(connection, dropped=dropped)
        return result

    def close(self) -> None:
        """Close the idle connections now and those in use when they come back."""
        self._idle.drop()

    def _take(self) -> Any:
        while (connection := self._idle.take()) is not None:
            if not connection.closed:
                return connection
        return self._psycopg.connect(
            self._dsn,
            autocommit=True,
            connect_timeout=max(2, int(self._timeout_s)),
            options=f"-c statement_timeout={int(self._timeout_s * 1000)}",
        )
