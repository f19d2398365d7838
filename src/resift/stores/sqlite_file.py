"""The database file: its schema, how it is opened, who built it, and what its errors mean."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from resift.errors import StoreError

SCHEMA_VERSION = 1
APPLICATION_ID = 0x52534654  # "RSFT"
BUSY_TIMEOUT_S = 30.0

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    text TEXT NOT NULL,
    metadata TEXT NOT NULL
);
CREATE TABLE vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE attributes (
    key TEXT NOT NULL, value TEXT NOT NULL, row INTEGER NOT NULL, PRIMARY KEY (key, value, row)
) WITHOUT ROWID;
CREATE TABLE removed (number INTEGER PRIMARY KEY AUTOINCREMENT, row INTEGER NOT NULL);
CREATE TABLE sources (path TEXT PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(text, content='documents', content_rowid='row', tokenize='{tokenizer}');
"""
_FIRST_FACTS = {"generation": "0", "removals": "0", "embedder": "", "dimension": "0"}


class FileFacts(NamedTuple):
    """What a file says about itself; `generation` counts writes, `removals` rows that went away."""

    generation: int
    removals: int
    embedder: str
    dimension: int
    tokenizer: str


def tokenizer_for(stemming: bool) -> str:
    """Return FTS5's tokenizer setting: words without case and diacritics, English stems if asked."""
    return ("porter " if stemming else "") + "unicode61 remove_diacritics 2"


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

    def _take(self) -> Connection:
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.path} is closed; open a new store.", store=self.name)
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
            if _version(connection) == 0 and not self.read_only:
                _create(connection, tokenizer_for(stemming))
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    def _check(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application != APPLICATION_ID:
            raise StoreError(
                f"{self.path} is a database of another program. Choose another file for the index.",
                store=self.name,
            )
        version = _version(connection)
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


def read_facts(connection: sqlite3.Connection) -> FileFacts:
    """Return the facts as they are in the connection's snapshot."""
    facts: Mapping[str, str] = dict(connection.execute("SELECT name, value FROM facts"))
    return FileFacts(
        int(facts["generation"]),
        int(facts["removals"]),
        facts["embedder"],
        int(facts["dimension"]),
        facts["tokenizer"],
    )


def _create(connection: sqlite3.Connection, tokenizer: str) -> None:
    connection.execute("PRAGMA page_size=8192")  # five 384-d vectors a page instead of two in 4096
    _use_wal(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables == 0:
            for statement in _SCHEMA.format(tokenizer=tokenizer).split(";\n"):
                connection.execute(statement)
            facts = {**_FIRST_FACTS, "tokenizer": tokenizer}
            connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch a new file to WAL; SQLite's busy timeout does not cover this moment, so wait here."""
    give_up_at = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as exc:
            if "locked" not in str(exc) or time.monotonic() > give_up_at:
                raise
            time.sleep(0.01)


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")
