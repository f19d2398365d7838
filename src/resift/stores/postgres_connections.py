"""A few PostgreSQL connections, lent to worker threads one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from resift.errors import require
from resift.stores.idle_connections import IdleConnections

T = TypeVar("T")
Fields = tuple[Any, ...]


class Cursor(Protocol):
    """What is used of psycopg's answer to a statement."""

    rowcount: int

    def executemany(self, statement: object, rows: Iterable[Sequence[object]]) -> None:
        """Run a statement once per row."""

    def fetchone(self) -> Fields | None:
        """Return the first row that was found."""

    def fetchall(self) -> list[Fields]:
        """Return all rows that were found."""


class Connection(Protocol):
    """What is used of psycopg's connection; `psycopg.sql` composes its statements, never a text."""

    closed: bool

    def execute(self, statement: object, values: Sequence[object] = ()) -> Cursor:
        """Run one statement."""

    def cursor(self) -> AbstractContextManager[Cursor]:
        """Return a cursor for many rows."""

    def transaction(self) -> AbstractContextManager[object]:
        """Make what happens inside one change, or none."""

    def close(self) -> None:
        """Give up the connection."""


class Connections:
    """One connection per thread that asks at the same time; kept when done, dropped when broken."""

    def __init__(self, dsn: str, *, timeout_s: float) -> None:
        self._psycopg = require("psycopg", extra="postgres")
        self._dsn = dsn
        self._timeout_s = timeout_s
        self._idle: IdleConnections[Connection] = IdleConnections()

    def run(self, job: Callable[[Connection], T]) -> T:
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

    def _take(self) -> Connection:
        while (connection := self._idle.take()) is not None:
            if not connection.closed:
                return connection
        made: Connection = self._psycopg.connect(
            self._dsn,
            autocommit=True,
            connect_timeout=max(2, int(self._timeout_s)),
            options=f"-c statement_timeout={int(self._timeout_s * 1000)}",
        )
        return made
