"""The index file: its tables, file metadata, checksums, connections and error messages.

A checksum covers the row number and the length of each part. It cannot detect a row that a damaged index hides.
So a second table counts the rows of each attribute, ids are in two indexes, and each block of posting lists
names the first term of the next block.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from zlib import crc32

from resift._internal.forking import after_fork, leak
from resift.errors import StoreError, shell_path

SCHEMA_VERSION = 4
LEGACY_VERSION = 2  # schema of Resift 0.2, with an FTS5 table instead of postings and no attributes for list values
APPLICATION_ID = 0x52534654  # "RSFT"
BUSY_TIMEOUT_S = 30.0
_FIRST_BYTES = b"SQLite format 3\0"

_SCHEMA = resources.files("resift.stores.sqlite").joinpath("schema.sql").read_text(encoding="utf-8")
_DEFINITIONS = re.findall(r"^CREATE ((?:TABLE|INDEX) (\w+) [^;]+);", _SCHEMA, re.MULTILINE)
TABLES = {name: " ".join(definition.split()) for definition, name in _DEFINITIONS}
_LEGACY_DEFINITIONS = (
    *(name for name in TABLES if name != "postings"),
    *("terms", "term_checks", "terms_data", "terms_idx", "terms_config"),
)
"""Tables and indexes that the schema checksum of the legacy version covers."""


class IndexCorruptedError(Exception):
    """Part of the file differs from what was written. The message has the location, never the content."""

    def __init__(self, table: str, row: object) -> None:
        super().__init__(f"table {table}, row {row}")


def checksum(row: int, *parts: bytes | None) -> int:
    """Return the CRC-32 of a row number and its parts."""
    value = crc32(b"%d" % row)
    for part in parts:
        if not isinstance(part, bytes):
            return -1  # a damaged page may return a number or NULL; no CRC is negative
        value = crc32(part, crc32(b"|%d|" % len(part), value))
    return value


class Connection(sqlite3.Connection):
    """A connection, with the schema version of the file when it was opened."""

    version = SCHEMA_VERSION
    stamp: tuple[int, int, int] | None = None  # identity of the file if it is read without locks

    def __del__(self) -> None:
        """Close without the ResourceWarning of Python 3.13, because users need not close an Index."""
        with contextlib.suppress(sqlite3.ProgrammingError):  # the file could not be opened
            self.close()


class Segment(NamedTuple):
    """A sorted run of posting lists for the rows of consecutive writes."""

    number: int
    documents: int


SELECT_FACTS = "SELECT name, value FROM facts"


class FileMetadata(NamedTuple):
    """Metadata of an index file: the generation counts writes, `languages` are those of the stems."""

    version: int
    generation: int
    embedder: str
    dimension: int
    language: str
    analyzer: str
    languages: frozenset[str]
    documents: int
    tokens: int
    segments: tuple[Segment, ...] = ()

    @property
    def mean_length(self) -> float:
        """Mean number of terms per document."""
        return self.tokens / self.documents if self.documents and self.tokens else 1.0


def read_metadata(connection: sqlite3.Connection) -> FileMetadata:
    """Return the file metadata in the connection's snapshot."""
    return parse_metadata(connection.execute(SELECT_FACTS).fetchall())


def parse_metadata(pairs: Sequence[tuple[str, str]]) -> FileMetadata:
    """Parse the rows of `SELECT_FACTS`; raise IndexCorruptedError if they are damaged."""
    facts: Mapping[str, str] = dict(pairs)
    try:
        if facts["checksum"] != _facts_checksum(facts):
            raise IndexCorruptedError("facts", "all")
        segments = (Segment(*map(int, item.split(":"))) for item in facts.get("segments", "").split())
        return FileMetadata(
            version=SCHEMA_VERSION if "segments" in facts else LEGACY_VERSION,
            generation=int(facts["generation"]),
            embedder=facts["embedder"],
            dimension=int(facts["dimension"]),
            language=facts["language"],
            analyzer=facts["analyzer"],
            languages=frozenset(facts["languages"].split()),
            documents=int(facts["documents"]),
            tokens=int(facts["tokens"]),
            segments=tuple(segments),
        )
    except (KeyError, ValueError, AttributeError, TypeError):  # a damaged page may return other types
        raise IndexCorruptedError("facts", "all") from None


def initial_metadata(language: str, analyzer: str) -> dict[str, str]:
    """Return the stored metadata of an empty file."""
    texts = dict.fromkeys(("embedder", "languages", "segments"), "")
    numbers = dict.fromkeys(("generation", "dimension", "documents", "tokens"), "0")
    return {**texts, **numbers, "language": language, "analyzer": analyzer}


def write_metadata(connection: sqlite3.Connection, facts: Mapping[str, object]) -> None:
    """Set these entries of the file metadata."""
    pairs = [(name, str(value)) for name, value in facts.items()]
    connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", pairs)


def sign_metadata(connection: sqlite3.Connection) -> None:
    """Update the checksum of the file metadata, as the last step of every write."""
    facts: dict[str, str] = dict(connection.execute(SELECT_FACTS))
    write_metadata(connection, {"checksum": _facts_checksum(facts)})


def sign_definitions(connection: sqlite3.Connection) -> None:
    """Record the current schema version and the checksum of its table definitions."""
    write_metadata(connection, {"schema": _definitions_checksum(connection, SCHEMA_VERSION)})
    sign_metadata(connection)
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def create_tables(connection: sqlite3.Connection, facts: Mapping[str, str]) -> None:
    """Turn an empty database into an index; safe if two processes do so at the same time."""
    connection.execute("PRAGMA page_size=8192")  # fits five vectors of 384 dimensions; 4096 would fit two
    # SQLite's busy timeout does not cover the switch to WAL, so retry.
    give_up_at = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as exc:
            if "locked" not in str(exc) or time.monotonic() > give_up_at:
                raise
            time.sleep(0.01)
    with connection:  # commits, or rolls back on any error
        connection.execute("BEGIN IMMEDIATE")
        # Check inside the transaction, where the second of two processes sees the tables of the first.
        if count_tables(connection) == 0:
            for definition in TABLES.values():
                connection.execute(f"CREATE {definition}")
            write_metadata(connection, facts)
            sign_definitions(connection)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")


def count_tables(connection: sqlite3.Connection) -> int:
    """Return the number of tables and indexes in the file."""
    return int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def read_version(connection: sqlite3.Connection) -> int:
    """Return the schema version; 0 for an empty database."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _facts_checksum(facts: Mapping[str, str]) -> str:
    pairs = sorted((name, value) for name, value in facts.items() if name != "checksum")
    return str(checksum(len(pairs), *(part.encode() for pair in pairs for part in pair)))


def _definitions_checksum(connection: sqlite3.Connection, version: int) -> str:
    names = _LEGACY_DEFINITIONS if version == LEGACY_VERSION else tuple(TABLES)
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    definitions = dict(connection.execute("SELECT name, sql FROM sqlite_master"))
    parts = [f"{name} {definitions.get(name)}".encode() for name in names]
    return str(checksum(0, encoding.encode(), *parts))


# The file


class FileReplacedError(StoreError):
    """The file, which is read without locks, was replaced during a read."""


class DatabaseFile:
    """Pooled connections to one file. A connection is used by one thread at a time."""

    def __init__(
        self, path: str | os.PathLike[str], *, name: str, facts: Mapping[str, str] | None, read_only: bool
    ) -> None:
        """Open the file. `facts` is the metadata for a new file, or None if a missing file is an error."""
        self.path, self.name, self.read_only = Path(path), name, read_only
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._pool_number = 0  # connections of an earlier pool are closed when they are returned
        self.closed = False
        after_fork(self)
        with self.translate_errors():
            self._check_path(must_exist=facts is None or read_only)
            connection = self._connect()
            try:
                if connection.version == 0 and facts is not None and not read_only:
                    create_tables(connection, facts)
                    connection.version = read_version(connection)
                self._check_schema(connection)
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)

    @contextlib.contextmanager
    def reading(self, *, reopen: bool = False) -> Iterator[Connection]:
        """Lend a connection for reading; with `reopen` even after `close`, because hits may outlive their store."""
        if reopen and self.closed:
            file = DatabaseFile(self.path, name=self.name, facts=None, read_only=True)
            with contextlib.closing(file), file.reading() as connection:
                yield connection
            return
        with self._lend() as connection:
            try:
                yield connection
            finally:
                connection.rollback()  # an open snapshot would prevent truncation of the write-ahead log
            if connection.stamp is not None and connection.stamp != self._read_stamp():
                problem = f"{self.path} changed while it was being read."
                raise FileReplacedError(problem, store=self.name, transient=True)

    @contextlib.contextmanager
    def writing(self, convert: Callable[[Connection], None] | None = None) -> Iterator[Connection]:
        """Lend a connection in a write transaction, rolled back on any error; `convert` first upgrades old files."""
        self.require_writable()
        with self._lend() as connection:
            try:
                with connection:  # commits, or rolls back on any error
                    # Take the write lock now, because upgrading a read lock later can fail.
                    connection.execute("BEGIN IMMEDIATE")
                    if convert is not None and read_version(connection) < SCHEMA_VERSION:
                        convert(connection)
                        connection.version = SCHEMA_VERSION
                    yield connection
                    # Readers compare generations and reload only the blocks that changed since their own.
                    connection.execute("UPDATE facts SET value = value + 1 WHERE name = 'generation'")
                    sign_metadata(connection)
            except BaseException:
                connection.version = read_version(connection)
                raise

    def require_writable(self) -> None:
        """Raise StoreError if the file was opened read-only."""
        if self.read_only:
            raise self._error(f"{self.path} was opened read-only; open it without read_only to write.")

    def require_open(self) -> None:
        """Raise StoreError if the file has been closed."""
        if self.closed:
            raise self._error(f"{self.path} is closed; open a new store.")

    def close(self) -> None:
        """Close idle connections now, and those in use when they are returned."""
        was_closed, self.closed = self.closed, True
        with self._lock:
            idle, self._idle = self._idle, []
            self._pool_number += 1
        for connection in idle:
            connection.close()
        if self.read_only and not was_closed and _sidecar(self.path, "-wal").exists():
            # Read-only connections leave -wal and -shm behind. A writable one removes them if it is the last.
            with contextlib.suppress(sqlite3.Error):
                last = sqlite3.connect(_uri(self.path, "rw"), uri=True, timeout=0)
                with contextlib.closing(last):
                    read_version(last)

    def reset_after_fork(self) -> None:
        """Start with no connections in a forked child; the parent continues to use its own."""
        self._lock = threading.Lock()
        leak(*self._idle)
        self._idle = []

    @contextlib.contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn SQLite errors and failed checksums into a StoreError that suggests the next step."""
        try:
            yield
        except IndexCorruptedError as exc:
            raise self._corruption_error(str(exc)) from None
        except UnicodeDecodeError:  # from a damaged schema; the original message would quote the bytes
            raise self._corruption_error("a text is not UTF-8") from None
        except sqlite3.Error as exc:
            if "decode" in str(exc):
                exc.args = ("a text is not UTF-8",)  # SQLite's own message quotes the text
            raise self._explain(exc) from exc

    @contextlib.contextmanager
    def _lend(self) -> Iterator[Connection]:
        with self.translate_errors():
            self.require_open()
            with self._lock:
                pool_number = self._pool_number
                connection = self._idle.pop() if self._idle else None
            # Another process may have converted the file, or replaced it while we read without locks.
            if connection is not None and (
                connection.version != read_version(connection)
                or (connection.stamp is not None and connection.stamp != self._read_stamp())
            ):
                connection.close()
                connection = None
            connection = connection or self._connect()
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
        uri, stamp = _uri(self.path, "ro" if self.read_only else "rwc"), None
        folder_is_writable = os.access(self.path.absolute().parent, os.W_OK)
        if self.read_only and not folder_is_writable and not _sidecar(self.path, "-wal").exists():
            # A reader of a WAL file must create a -shm file, or declare that the file is immutable. A writer may
            # still exist, so the file's stamp is compared before and after each read.
            uri += "&immutable=1"
            stamp = self._read_stamp()
        connection = sqlite3.connect(
            uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, factory=Connection
        )
        try:
            connection.execute("PRAGMA synchronous=FULL")  # acknowledged writes survive a power cut
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute("PRAGMA cache_size=-8192")  # a negative value is in KiB: 8 MB per connection
            connection.stamp = stamp
            connection.version = read_version(connection)
            if connection.version == LEGACY_VERSION:
                # Create the table outside of transactions, because a rollback would drop it.
                connection.execute("CREATE VIRTUAL TABLE temp.instances USING fts5vocab(main, terms, instance)")
        except BaseException:
            connection.close()
            raise
        return connection

    def _read_stamp(self) -> tuple[int, int, int]:
        if _sidecar(self.path, "-wal").exists():
            return (0, 0, 0)  # a writer exists, so use locks from now on
        status = self.path.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _check_path(self, *, must_exist: bool) -> None:
        """Raise StoreError for a path that cannot be an index; SQLite would report it as damage."""
        if self.path.name == ":memory:":
            raise self._error(
                "':memory:' would be a file of that name. Use another file name, or keep documents in memory with "
                "resift.MemoryStore."
            )
        if self.path.is_dir():
            raise self._error(
                f"{self.path} is a folder, and an index is one file. To index the folder: "
                f"resift index {shell_path(self.path)} --store my.db"
            )
        # Catch paths below a file, such as "notes.txt/my.db".
        parent = next((parent for parent in self.path.absolute().parents if parent.exists()), self.path.parent)
        if parent.exists() and not parent.is_dir():
            raise self._error(
                f"{self.path} cannot be opened: {parent} is a file, not a folder. Choose another place for the index."
            )
        if must_exist and not self.path.exists():
            build = f"resift index FOLDER --store {shell_path(self.path)}"
            raise self._error(f"{self.path} does not exist. Build it with: {build}")
        # Opening a pipe would wait for a writer. A pipe and a device have the size 0.
        if self.path.exists() and not self.path.is_file():
            raise self._error(f"{self.path} is not a file. Choose another path for the index.")
        if not self.path.exists() or self.path.stat().st_size == 0:
            return
        with self.path.open("rb") as file:
            if file.read(len(_FIRST_BYTES)) != _FIRST_BYTES:
                raise self._error(
                    f"{self.path} is not an index (not a SQLite file). Nothing was changed. "
                    "Use a file created by resift index, or a new file."
                )

    def _check_schema(self, connection: Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application == 0 and count_tables(connection) == 0:
            raise self._error(f"{self.path} is empty. Index some documents into it first.")
        if application != APPLICATION_ID:
            raise self._error(f"{self.path} is the database of another program. Choose another file for the index.")
        if connection.version == 1:
            raise self._error(
                f"{self.path} was written by Resift 0.1, which this version cannot read. Rebuild it from "
                f"its files: resift index FOLDER --store {shell_path(self.path.with_suffix('.new.db'))}"
            )
        if connection.version not in (LEGACY_VERSION, SCHEMA_VERSION):
            raise self._error(
                f"{self.path} has schema version {connection.version}; this Resift reads "
                f"{LEGACY_VERSION} and {SCHEMA_VERSION}. Index again into a new file, or use the Resift that wrote it."
            )
        # A changed column type alters comparisons even if no page is damaged.
        stored = connection.execute("SELECT value FROM facts WHERE name = 'schema'").fetchone()
        if stored is not None and stored[0] != _definitions_checksum(connection, connection.version):
            raise IndexCorruptedError("sqlite_master", "all")

    def _error(self, message: str) -> StoreError:
        return StoreError(message, store=self.name)

    def _corruption_error(self, location: str) -> StoreError:
        if "code_blocks" in location:
            return self._error(
                f"{self.path} is damaged ({location}), but nothing is lost. Rebuild its bit codes: "
                f"resift store optimize {shell_path(self.path)}"
            )
        return self._error(
            f"{self.path} is damaged ({location}). Restore a copy, or move it away and index again; "
            f"resift doctor --store {shell_path(self.path)} lists all problems."
        )

    def _explain(self, exc: sqlite3.Error) -> StoreError:
        reason, path = str(exc), self.path
        if "locked" in reason or "busy" in reason:
            why = f"{path} is busy: another process has locked it for {BUSY_TIMEOUT_S:.0f} s. Try again."
            return StoreError(why, store=self.name, transient=True)
        if any(word in reason for word in ("not a database", "malformed", "not UTF-8", "no such", "corrupt")):
            return self._corruption_error(reason)
        if "unable to open" in reason:
            return self._error(f"{path} cannot be opened. Check that its folder exists and is writable.")
        if "readonly" in reason:
            return self._error(f"{path} cannot be written. Check its permissions, or open it with read_only=True.")
        if "full" in reason:
            reason = "the disk is full. Free some space and run again; nothing acknowledged is lost"
        return self._error(f"{path}: {reason}.")


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path.absolute()))}?mode={mode}"


def _sidecar(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
