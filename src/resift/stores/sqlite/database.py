"""The index file: how it is opened, shared between threads, and how its errors are explained."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from resift._internal.forking import after_fork, leak
from resift.errors import StoreError, shell_path
from resift.stores.sqlite.tables import (
    APPLICATION_ID,
    BUSY_TIMEOUT_S,
    POSTINGS_SINCE,
    READABLE_VERSIONS,
    SCHEMA_VERSION,
    Connection,
    FileStamp,
    IndexCorruptedError,
    check_definitions,
    count_tables,
    create_tables,
    read_version,
    sign_metadata,
)

_FIRST_BYTES = b"SQLite format 3\0"


class FileReplacedError(StoreError):
    """A file that is read without locks was replaced during a read."""


class DatabaseFile:
    """Pooled connections to one file. Each is used by one thread at a time."""

    def __init__(
        self, path: str | os.PathLike[str], *, name: str, facts: Mapping[str, str] | None, read_only: bool
    ) -> None:
        """Open the file. `facts` is the metadata of a new file, or None if a missing file is an error."""
        self.path = Path(path)
        self.name = name
        self.read_only = read_only
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._pool_number = 0  # connections of an earlier pool are closed when they come back
        self.closed = False
        after_fork(self)
        with self.translate_errors():
            self._create_or_check(facts)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lend a connection for reads. The caller begins its own snapshot."""
        with self._lend() as connection:
            try:
                yield connection
            finally:
                # An open snapshot would keep the write-ahead log from being truncated.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if connection.stamp is not None and connection.stamp != self._read_stamp():
                raise FileReplacedError(
                    f"{self.path} changed while it was read.", store=self.name, transient=True
                )

    @contextlib.contextmanager
    def reading_again(self) -> Iterator[Connection]:
        """Lend a connection for reads, even after `close`: hits outlive their store."""
        if not self.closed:
            with self.reading() as connection:
                yield connection
            return
        again = DatabaseFile(self.path, name=self.name, facts=None, read_only=True)
        try:
            with again.reading() as connection:
                yield connection
        finally:
            again.close()

    @contextlib.contextmanager
    def writing(self, convert: Callable[[Connection], None] | None = None) -> Iterator[Connection]:
        """Lend a connection in a write transaction, which is rolled back on any error.

        `convert` brings a file of an older version to the current one, in the same transaction.
        """
        self.require_writable()
        with self._lend() as connection:
            # Take the write lock now: upgrading a read lock later can fail.
            connection.execute("BEGIN IMMEDIATE")
            try:
                if convert is not None and read_version(connection) < SCHEMA_VERSION:
                    convert(connection)
                    connection.version = SCHEMA_VERSION
                yield connection
                # Readers compare the generation and reload only the blocks changed since theirs.
                connection.execute("UPDATE facts SET value = value + 1 WHERE name = 'generation'")
                sign_metadata(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                connection.version = read_version(connection)
                raise

    def require_writable(self) -> None:
        """Raise StoreError if the file was opened read-only."""
        if self.read_only:
            raise StoreError(
                f"{self.path} was opened read-only; open it without read_only to write.", store=self.name
            )

    def require_open(self) -> None:
        """Raise StoreError after `close`."""
        if self.closed:
            raise StoreError(f"{self.path} is closed; open a new store.", store=self.name)

    def close(self) -> None:
        """Close the idle connections now, and those in use when they come back."""
        was_closed, self.closed = self.closed, True
        with self._lock:
            idle, self._idle = self._idle, []
            self._pool_number += 1
        for connection in idle:
            connection.close()
        if self.read_only and not was_closed and _sidecar(self.path, "-wal").exists():
            # Readers leave -wal and -shm behind. A writing connection removes them if it is the last.
            with contextlib.suppress(sqlite3.Error):
                uri = f"file:{quote(str(self.path.absolute()))}?mode=rw"
                with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0)) as last:
                    read_version(last)

    def reset_after_fork(self) -> None:
        """Start with no connections in a forked child; the parent continues to use its own."""
        self._lock = threading.Lock()
        leak(*self._idle)
        self._idle = []

    @contextlib.contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn errors of SQLite and failed checksums into a StoreError with the next step."""
        try:
            yield
        except IndexCorruptedError as exc:
            raise self._corruption_error(str(exc)) from None
        except UnicodeDecodeError:  # a damaged schema; the message would quote the bytes
            raise self._corruption_error("a text is not UTF-8") from None
        except sqlite3.Error as exc:
            if "decode" in str(exc):
                exc.args = ("a text is not UTF-8",)  # SQLite's own message quotes the text
            raise self._explain(exc) from exc

    @contextlib.contextmanager
    def _lend(self) -> Iterator[Connection]:
        with self.translate_errors():
            if self.closed:
                self.require_open()
            connection: Connection | None = None
            with self._lock:
                pool_number = self._pool_number
                if self._idle:
                    connection = self._idle.pop()
            # Another process may have converted the file, or replaced one that is read without locks.
            if connection is not None and (
                connection.version != read_version(connection)
                or (connection.stamp is not None and connection.stamp != self._read_stamp())
            ):
                connection.close()
                connection = None
            if connection is None:
                connection = self._connect()
            try:
                yield connection
            finally:
                with self._lock:
                    keep = self._pool_number == pool_number
                    if keep:
                        self._idle.append(connection)
                if not keep:
                    connection.close()

    def _connect(self) -> Connection:
        uri = f"file:{quote(str(self.path.absolute()))}?mode={'ro' if self.read_only else 'rwc'}"
        stamp = None
        folder_is_writable = os.access(self.path.absolute().parent, os.W_OK)
        if self.read_only and not folder_is_writable and not _sidecar(self.path, "-wal").exists():
            # A reader of a WAL file must create its -shm, or declare that nobody writes. Somebody may, so
            # the file's stamp is compared before and after each read.
            uri += "&immutable=1"
            stamp = self._read_stamp()
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )
        try:
            connection.execute("PRAGMA synchronous=FULL")  # acknowledged writes survive a power cut
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute("PRAGMA cache_size=-8192")  # negative: KiB, so 8 MB per connection
            connection.stamp = stamp
            connection.version = read_version(connection)
            if connection.version in READABLE_VERSIONS and connection.version < POSTINGS_SINCE:
                # Made outside of transactions: a rollback would take it away.
                connection.execute(
                    "CREATE VIRTUAL TABLE temp.instances USING fts5vocab(main, terms, instance)"
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def _read_stamp(self) -> FileStamp:
        if _sidecar(self.path, "-wal").exists():
            return (0, 0, 0)  # somebody writes: use locks from now on
        status = self.path.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _create_or_check(self, facts: Mapping[str, str] | None) -> None:
        creating = facts is not None and not self.read_only
        self._check_path()
        if not creating and not self.path.exists():
            raise StoreError(
                f"{self.path} does not exist. Build it with: "
                f"resift index FOLDER --store {shell_path(self.path)}",
                store=self.name,
            )
        connection = self._connect()
        try:
            if connection.version == 0 and facts is not None and creating:
                create_tables(connection, facts)
                connection.version = read_version(connection)
            self._check_schema(connection)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    def _check_path(self) -> None:
        """Raise StoreError for a path that cannot be an index, before SQLite reports it as damage."""
        if self.path.name == ":memory:":
            raise StoreError(
                "':memory:' would be a file of that name. Name a file, or keep documents in memory with "
                "resift.MemoryStore.",
                store=self.name,
            )
        if self.path.is_dir():
            raise StoreError(
                f"{self.path} is a folder, and an index is one file. To index the folder: "
                f"resift index {shell_path(self.path)} --store my.db",
                store=self.name,
            )
        # Such as "notes.txt/my.db".
        parent = next((parent for parent in self.path.absolute().parents if parent.exists()), None)
        if parent is not None and not parent.is_dir():
            raise StoreError(
                f"{self.path} cannot be opened: {parent} is a file, not a folder. "
                "Choose another place for the index.",
                store=self.name,
            )
        if not self.path.exists() or self.path.stat().st_size == 0:
            return
        if not self.path.is_file():
            raise StoreError(
                f"{self.path} is not a file. Choose another path for the index.", store=self.name
            )
        with self.path.open("rb") as file:
            if file.read(len(_FIRST_BYTES)) != _FIRST_BYTES:
                raise StoreError(
                    f"{self.path} is not an index (not a SQLite file). Nothing was changed. "
                    "Name a file that resift index wrote, or a new file.",
                    store=self.name,
                )

    def _check_schema(self, connection: Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application == 0 and count_tables(connection) == 0:
            raise StoreError(f"{self.path} is empty. Index into it first.", store=self.name)
        if application != APPLICATION_ID:
            raise StoreError(
                f"{self.path} is a database of another program. Choose another file for the index.",
                store=self.name,
            )
        if connection.version == 1:
            raise StoreError(
                f"{self.path} was written by Resift 0.1, which this version cannot read. Rebuild it from "
                f"its files: resift index FOLDER --store {shell_path(self.path.with_suffix('.new.db'))}",
                store=self.name,
            )
        if connection.version not in READABLE_VERSIONS:
            raise StoreError(
                f"{self.path} has schema version {connection.version}; this Resift reads up to "
                f"{SCHEMA_VERSION}. Index again into a new file, or use the Resift that wrote it.",
                store=self.name,
            )
        check_definitions(connection)

    def _corruption_error(self, location: str) -> StoreError:
        if "code_blocks" in location:
            return StoreError(
                f"{self.path} is damaged ({location}). Rebuild its bit codes, nothing is lost: "
                f"resift store optimize {shell_path(self.path)}",
                store=self.name,
            )
        return StoreError(
            f"{self.path} is damaged ({location}). Restore a copy, or move it away and index again; "
            f"resift doctor --store {shell_path(self.path)} lists all problems.",
            store=self.name,
        )

    def _explain(self, exc: sqlite3.Error) -> StoreError:
        reason = str(exc)
        if "locked" in reason or "busy" in reason:
            why = f"{self.path} is busy: another process held it for {BUSY_TIMEOUT_S:.0f} s. Try again."
            return StoreError(why, store=self.name, transient=True)
        if any(word in reason for word in ("not a database", "malformed", "not UTF-8", "no such", "corrupt")):
            return self._corruption_error(reason)
        if "unable to open" in reason:
            why = f"{self.path} cannot be opened. Check that its folder exists and is writable."
        elif "readonly" in reason:
            why = f"{self.path} cannot be written. Check its permissions, or open it with read_only=True."
        elif "full" in reason:
            why = (
                f"{self.path}: the disk is full. Free some space and run again; nothing acknowledged is lost."
            )
        else:
            why = f"{self.path}: {reason}."
        return StoreError(why, store=self.name)


def _sidecar(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
