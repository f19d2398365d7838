"""The database file: how it is opened, lent to threads, and what its errors mean."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from resift.errors import StoreError, shell_path
from resift.stores.idle_connections import IdleConnections
from resift.stores.sqlite_checks import Damage, sign_word_pages, watch_word_pages
from resift.stores.sqlite_rows import index_lists
from resift.stores.sqlite_schema import (
    APPLICATION_ID,
    BUSY_TIMEOUT_S,
    READABLE_VERSIONS,
    SCHEMA_VERSION,
    Connection,
    Stamp,
    check_definitions,
    count_tables,
    create_tables,
    has_table,
    sign_facts,
    version_of,
)
from resift.stores.sqlite_version_1 import show_as_version_2

_FIRST_BYTES = b"SQLite format 3\0"


class FileChanged(StoreError):
    """A file without locks was replaced while it was read."""


class DatabaseFile:
    """Connections to one file. Each is used by one thread at a time and goes back into the pool."""

    def __init__(
        self, path: str | os.PathLike[str], *, name: str, facts: Mapping[str, str] | None, read_only: bool
    ) -> None:
        """Open the file; with `facts` make it where it is missing."""
        self.path = Path(path)
        self.name = name
        self.read_only = read_only
        self._idle: IdleConnections[Connection] = IdleConnections()
        self._closed = False
        with self.errors():
            self._create_or_check(facts)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lend a connection for reads; the caller begins and ends its own snapshot."""
        with self._lent() as connection:
            try:
                yield connection
            finally:
                # A snapshot that stays open keeps the write-ahead log from being emptied.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if connection.stamp is not None and connection.stamp != self._stamp():
                raise FileChanged(f"{self.path} changed while it was read.", store=self.name, transient=True)

    @contextlib.contextmanager
    def writing(self, *, upgrade: bool = False) -> Iterator[Connection]:
        """Lend a connection inside a write transaction; commits at the end, rolls back on any error."""
        self.refuse_read_only()
        with self._lent() as connection:
            if connection.version == 1 and not upgrade:
                raise StoreError(self.how_to_upgrade(), store=self.name)
            # Takes the write lock now: a read that turns into a write can fail at its last statement.
            connection.execute("BEGIN IMMEDIATE")
            try:
                if not upgrade and version_of(connection) < SCHEMA_VERSION:
                    index_lists(connection)
                    connection.version = SCHEMA_VERSION
                yield connection
                # Readers compare the generation and read only blocks that changed since theirs.
                connection.execute("UPDATE facts SET value = value + 1 WHERE name = 'generation'")
                if connection.checked:
                    sign_word_pages(connection)
                sign_facts(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def how_to_upgrade(self) -> str:
        """Return what to tell the owner of a file of version 1."""
        return (
            f"{self.path} was written by Resift 0.1 and can only be read. "
            f"Upgrade it, nothing is lost: resift index --upgrade --store {shell_path(self.path)}"
        )

    def refuse_read_only(self) -> None:
        """Raise StoreError where this file may only be read."""
        if self.read_only:
            raise StoreError(
                f"{self.path} was opened read-only; open it without read_only to write.", store=self.name
            )

    def close(self) -> None:
        """Close all idle connections; those still in use close when they come back."""
        was_closed, self._closed = self._closed, True
        self.drop_connections()
        if self.read_only and not was_closed and _beside(self.path, "-wal").exists():
            self._tidy()

    def drop_connections(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._idle.drop()

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Translate what SQLite says into a StoreError with the next step."""
        try:
            yield
        except Damage as exc:
            raise self._damaged(str(exc)) from None
        except UnicodeDecodeError:  # SQLite's message about a damaged schema; it would quote the bytes
            raise self._damaged("a text is not UTF-8") from None
        except sqlite3.Error as exc:
            if "decode" in str(exc):
                exc.args = ("a text is not UTF-8",)  # SQLite's own words quote the text
            raise self._explained(exc) from exc

    @contextlib.contextmanager
    def _lent(self) -> Iterator[Connection]:
        with self.errors():
            dropped = self._idle.dropped
            connection = self._take()
            try:
                yield connection
            finally:
                self._idle.give_back(connection, dropped=dropped)

    def refuse_closed(self) -> None:
        """Raise StoreError after `close`."""
        if self._closed:
            raise StoreError(f"{self.path} is closed; open a new store.", store=self.name)

    def _take(self) -> Connection:
        self.refuse_closed()
        while (connection := self._idle.take()) is not None:
            # Another process may have upgraded the file, or replaced one that is read without locks.
            if connection.version == version_of(connection) and connection.stamp in (None, self._stamp()):
                return connection
            connection.close()
        return self._connect()

    def _connect(self) -> Connection:
        uri = f"file:{quote(str(self.path.absolute()))}?mode={'ro' if self.read_only else 'rwc'}"
        stamp = None
        if self.read_only and _unlockable(self.path):
            # A reader of a WAL file must create its -shm beside it, or else be told that nobody writes. That
            # may be wrong, so the file's stamp is compared before and after each read.
            uri += "&immutable=1"
            stamp = self._stamp()
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
            # Negative means KiB: 8 MB a connection.
            connection.execute("PRAGMA cache_size=-8192")
            connection.stamp = stamp
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: Connection) -> None:
        """Make the connection's temporary tables: a snapshot that is given up would take them with it."""
        connection.version = version_of(connection)
        if connection.version in READABLE_VERSIONS and count_tables(connection):
            table = "words" if connection.version == 1 else "terms"
            connection.execute(
                f"CREATE VIRTUAL TABLE temp.instances USING fts5vocab(main, {table}, instance)"
            )
            connection.checked = has_table(connection, "term_checks")
        if connection.checked and not self.read_only:
            watch_word_pages(connection)
        if connection.version == 1:
            show_as_version_2(connection)

    def _stamp(self) -> Stamp:
        if _beside(self.path, "-wal").exists():
            return (0, 0, 0)  # a writer is there: from now on its locks are used
        held = self.path.stat()
        return held.st_ino, held.st_mtime_ns, held.st_size

    def _tidy(self) -> None:
        """Let SQLite remove -wal and -shm if nobody else uses the file; readers alone leave them behind."""
        with contextlib.suppress(sqlite3.Error):
            uri = f"file:{quote(str(self.path.absolute()))}?mode=rw"
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0)) as connection:
                version_of(connection)

    def _create_or_check(self, facts: Mapping[str, str] | None) -> None:
        creating = facts is not None and not self.read_only
        self._refuse_other_kinds()
        if not creating and not self.path.exists():
            raise StoreError(
                f"{self.path} does not exist. Build it with: "
                f"resift index FOLDER --store {shell_path(self.path)}",
                store=self.name,
            )
        connection = self._connect()
        try:
            # A new file has version 0 and no tables; two processes may both find that, one of them creates.
            if connection.version == 0 and facts is not None and creating:
                create_tables(connection, facts)
                self._prepare(connection)
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        self._idle.give_back(connection, dropped=self._idle.dropped)

    def _refuse_other_kinds(self) -> None:
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
        # Through a file: "notes.txt/my.db".
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

    def _check(self, connection: Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application == 0 and count_tables(connection) == 0:
            raise StoreError(f"{self.path} is empty. Index into it first.", store=self.name)
        if application != APPLICATION_ID:
            raise StoreError(
                f"{self.path} is a database of another program. Choose another file for the index.",
                store=self.name,
            )
        if connection.version not in READABLE_VERSIONS:
            raise StoreError(
                f"{self.path} has schema version {connection.version}; this Resift reads up to "
                f"{SCHEMA_VERSION}. Index again into a new file, or use the Resift that wrote it.",
                store=self.name,
            )
        # A column of another type would compare otherwise without any page being wrong.
        check_definitions(connection)

    def _damaged(self, place: str) -> StoreError:
        if "code_blocks" in place:
            return StoreError(
                f"{self.path} is damaged ({place}). Make its bit codes anew, nothing is lost: "
                f"resift store optimise {shell_path(self.path)}",
                store=self.name,
            )
        return StoreError(
            f"{self.path} is damaged ({place}). Restore a copy, or move it away and index again; "
            f"resift doctor --store {shell_path(self.path)} lists all that is wrong.",
            store=self.name,
        )

    def _explained(self, exc: sqlite3.Error) -> StoreError:
        reason = str(exc)
        if "locked" in reason or "busy" in reason:
            why = f"{self.path} is busy: another process held it for {BUSY_TIMEOUT_S:.0f} s. Try again."
            return StoreError(why, store=self.name, transient=True)
        if any(word in reason for word in ("not a database", "malformed", "not UTF-8", "no such", "corrupt")):
            return self._damaged(reason)
        if "unable to open" in reason:
            why = f"{self.path} cannot be opened. Check that its folder exists and may be written."
        elif "readonly" in reason:
            why = f"{self.path} cannot be written. Check its permissions, or open it with read_only=True."
        elif "full" in reason:
            why = (
                f"{self.path}: the disk is full. Free some space and run again; nothing acknowledged is lost."
            )
        else:
            why = f"{self.path}: {reason}."
        return StoreError(why, store=self.name)


def _unlockable(path: Path) -> bool:
    """Say whether a reader can neither make nor find the files that readers and writers share."""
    return not os.access(path.absolute().parent, os.W_OK) and not _beside(path, "-wal").exists()


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
