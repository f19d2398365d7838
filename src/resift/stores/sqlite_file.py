"""The database file: how it is opened, lent to threads, and what its errors mean."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from resift.errors import StoreError
from resift.stores.sqlite_schema import (
    APPLICATION_ID,
    BUSY_TIMEOUT_S,
    SCHEMA_VERSION,
    count_tables,
    create_tables,
    tokenizer_for,
    version_of,
)


class Connection(sqlite3.Connection):
    """A connection that remembers whether its temporary search tables exist."""

    stop_words: frozenset[str] | None = None


class DatabaseFile:
    """Connections to one file. Each is used by one thread at a time and goes back into the pool."""

    def __init__(self, path: str | os.PathLike[str], *, name: str, stemming: bool, read_only: bool) -> None:
        self.path = Path(path)
        self.name = name
        self.read_only = read_only
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._closed = False
        with self.errors():
            self._create_or_check(stemming)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lend a connection for reads; the caller begins and ends its own snapshot."""
        with self._lent() as connection:
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Lend a connection inside a write transaction; commits at the end, rolls back on any error."""
        self.refuse_read_only()
        with self._lent() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("UPDATE facts SET value = value + 1 WHERE name = 'generation'")
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def refuse_read_only(self) -> None:
        """Raise StoreError where this file may only be read."""
        if self.read_only:
            raise StoreError(
                f"{self.path} was opened read-only; open it without read_only to write.", store=self.name
            )

    def close(self) -> None:
        """Close all idle connections; those still in use close when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Translate what SQLite says into a StoreError with the next step."""
        try:
            yield
        except sqlite3.Error as exc:
            raise self._explained(exc) from exc

    @contextlib.contextmanager
    def _lent(self) -> Iterator[Connection]:
        with self.errors():
            connection = self._take()
            try:
                yield connection
            finally:
                self._give_back(connection)

    def refuse_closed(self) -> None:
        """Raise StoreError after `close`."""
        if self._closed:
            raise StoreError(f"{self.path} is closed; open a new store.", store=self.name)

    def _take(self) -> Connection:
        self.refuse_closed()
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> Connection:
        mode = "ro" if self.read_only else "rwc"
        uri = f"file:{quote(str(self.path.absolute()))}?mode={mode}"
        if (
            self.read_only
            and not os.access(self.path.absolute().parent, os.W_OK)
            and not _wal(self.path).exists()
        ):
            uri += "&immutable=1"  # a reader of a WAL file must otherwise create its -shm beside it
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )
        try:
            connection.execute("PRAGMA synchronous=FULL")  # what was acknowledged survives a power cut
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute("PRAGMA cache_size=-16384")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _create_or_check(self, stemming: bool) -> None:
        if self.read_only and not self.path.exists():
            raise StoreError(
                f"{self.path} does not exist. Build it first: resift index PATH --store {self.path}",
                store=self.name,
            )
        connection = self._connect()
        try:
            # A new file has version 0 and no tables; two processes may both find that, one of them creates.
            if version_of(connection) == 0 and not self.read_only:
                create_tables(connection, tokenizer_for(stemming))
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    def _check(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application == 0 and count_tables(connection) == 0:
            raise StoreError(f"{self.path} is empty. Index into it first.", store=self.name)
        if application != APPLICATION_ID:
            raise StoreError(
                f"{self.path} is a database of another program. Choose another file for the index.",
                store=self.name,
            )
        version = version_of(connection)
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{self.path} has schema version {version}; this Resift reads version {SCHEMA_VERSION}. "
                "Index again into a new file, or use the Resift that wrote it.",
                store=self.name,
            )

    def _explained(self, exc: sqlite3.Error) -> StoreError:
        told = str(exc)
        if "locked" in told or "busy" in told:
            why = f"{self.path} is busy: another process held it for {BUSY_TIMEOUT_S:.0f} s. Try again."
            return StoreError(why, store=self.name, transient=True)
        if "not a database" in told or "malformed" in told:
            why = f"{self.path} is no usable index ({told}). Move it away and index again."
        elif "unable to open" in told:
            why = f"{self.path} cannot be opened. Check that its folder exists and may be written."
        elif "readonly" in told:
            why = f"{self.path} cannot be written. Check its permissions, or open it with read_only=True."
        elif "full" in told:
            why = (
                f"{self.path}: the disk is full. Free some space and run again; nothing acknowledged is lost."
            )
        else:
            why = f"{self.path}: {told}."
        return StoreError(why, store=self.name)


def _wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")
