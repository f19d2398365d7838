"""Tables of the index file, the metadata it stores about itself, and checksums.

A checksum covers the row number and the length of each part. It detects changed bytes, rows exchanged by a
damaged page, and characters moved between columns. It cannot detect a row that a damaged index hides. For
that, filters are counted in a second table, ids are in two indexes, and each block of posting lists names
the first term of the next block.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

SCHEMA_VERSION = 4
READABLE_VERSIONS = (2, 3, 4)
LISTS_INDEXED_SINCE = 3  # version 2 has no attributes for metadata values that are lists
POSTINGS_SINCE = 4  # versions 2 and 3 have an FTS5 table instead
APPLICATION_ID = 0x52534654  # "RSFT"
BUSY_TIMEOUT_S = 30.0

FileStamp = tuple[int, int, int]

TABLES = {
    "facts": "TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "documents": "TABLE documents (row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, "
    "text TEXT NOT NULL, metadata TEXT NOT NULL, checksum INTEGER NOT NULL)",
    "vectors": "TABLE vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL, checksum INTEGER NOT NULL)",
    "sources": "TABLE sources (path TEXT PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID",
}
"""Tables with user data."""

DERIVED_TABLES = {
    "attributes": "TABLE attributes (key TEXT NOT NULL, value BLOB NOT NULL, row INTEGER NOT NULL, "
    "PRIMARY KEY (key, value, row)) WITHOUT ROWID",
    # The number of rows that a filter must find, and the sum of their row numbers.
    "attribute_sums": "TABLE attribute_sums (key TEXT NOT NULL, value BLOB NOT NULL, rows INTEGER NOT NULL, "
    "total INTEGER NOT NULL, PRIMARY KEY (key, value)) WITHOUT ROWID",
    # A second index of ids, read when the first one does not know an id. It is an expression so that SQLite
    # uses it for nothing else.
    "documents_by_id": "INDEX documents_by_id ON documents (id || '')",
    "row_blocks": "TABLE row_blocks (block INTEGER PRIMARY KEY, generation INTEGER NOT NULL, "
    "lengths BLOB NOT NULL, checksum INTEGER NOT NULL)",
    "row_blocks_by_generation": "INDEX row_blocks_by_generation ON row_blocks (generation)",
    "code_blocks": "TABLE code_blocks (block INTEGER PRIMARY KEY, codes BLOB NOT NULL, "
    "checksum INTEGER NOT NULL)",
    "postings": "TABLE postings (segment INTEGER NOT NULL, first_term TEXT NOT NULL, lists BLOB NOT NULL, "
    "checksum INTEGER NOT NULL, PRIMARY KEY (segment, first_term)) WITHOUT ROWID",
}
"""Tables that can be rebuilt from the user data."""

_LEGACY_DEFINITIONS = (
    *TABLES, "attributes", "attribute_sums", "documents_by_id", "row_blocks", "row_blocks_by_generation",
    "code_blocks", "terms", "term_checks", "terms_data", "terms_idx", "terms_config",
)  # fmt: skip
"""What the schema checksum of versions 2 and 3 covers."""


class IndexCorruptedError(Exception):
    """Part of the file is not what was written. Carries the location and never the content."""

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
    """A connection with the schema version it was opened on."""

    version = SCHEMA_VERSION
    stamp: FileStamp | None = None
    """Identity of a file that is read without locks."""

    def __del__(self) -> None:
        """Close without the ResourceWarning of Python 3.13: users need not close an Index."""
        with contextlib.suppress(sqlite3.ProgrammingError):  # the file could not be opened
            self.close()


class Segment(NamedTuple):
    """One sorted run of posting lists: the rows of consecutive writes."""

    number: int
    documents: int


SELECT_FACTS = "SELECT name, value FROM facts"


class FileMetadata(NamedTuple):
    """What a file records about itself.

    `generation` counts writes. `analyzer` is the version of the text analysis that made the terms, and
    `languages` are those of its stems. `documents` and `tokens` are the collection statistics of BM25.
    """

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
        """Mean number of terms of a document."""
        return self.tokens / self.documents if self.documents and self.tokens else 1.0


def read_metadata(connection: sqlite3.Connection) -> FileMetadata:
    """Return the file metadata of the connection's snapshot."""
    return parse_metadata(connection.execute(SELECT_FACTS).fetchall())


def parse_metadata(pairs: Sequence[tuple[str, str]]) -> FileMetadata:
    """Return the file metadata from the rows of `SELECT_FACTS`; raises IndexCorruptedError."""
    facts: Mapping[str, str] = dict(pairs)
    try:
        if facts["checksum"] != _facts_checksum(facts):
            raise IndexCorruptedError("facts", "all")
        segments = (Segment(*map(int, item.split(":"))) for item in facts.get("segments", "").split())
        return FileMetadata(
            version=4 if "segments" in facts else 3 if "lists" in facts else 2,
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
    return {
        "generation": "0",
        "embedder": "",
        "dimension": "0",
        "language": language,
        "analyzer": analyzer,
        "languages": "",
        "documents": "0",
        "tokens": "0",
        "lists": "1",
        "segments": "",
    }


def write_metadata(connection: sqlite3.Connection, facts: Mapping[str, object]) -> None:
    """Set some entries of the file metadata."""
    pairs = [(name, str(value)) for name, value in facts.items()]
    connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", pairs)


def write_segments(connection: sqlite3.Connection, segments: tuple[Segment, ...]) -> None:
    """Record the segments of the keyword index, oldest first."""
    listed = " ".join(f"{segment.number}:{segment.documents}" for segment in segments)
    write_metadata(connection, {"segments": listed})


def sign_metadata(connection: sqlite3.Connection) -> None:
    """Update the checksum of the file metadata; the last step of every write."""
    facts: dict[str, str] = dict(connection.execute("SELECT name, value FROM facts"))
    write_metadata(connection, {"checksum": _facts_checksum(facts)})


def sign_definitions(connection: sqlite3.Connection) -> None:
    """Record the checksum of the table definitions of a current file."""
    write_metadata(connection, {"schema": _definitions_checksum(connection, SCHEMA_VERSION)})


def check_definitions(connection: Connection) -> None:
    """Raise IndexCorruptedError if a table definition has changed.

    A column of another type would change comparisons without any page being wrong.
    """
    stored = connection.execute("SELECT value FROM facts WHERE name = 'schema'").fetchone()
    if stored is not None and stored[0] != _definitions_checksum(connection, connection.version):
        raise IndexCorruptedError("sqlite_master", "all")


def create_tables(connection: sqlite3.Connection, facts: Mapping[str, str]) -> None:
    """Turn an empty database into an index. Safe if two processes try at the same time."""
    connection.execute("PRAGMA page_size=8192")  # fits five vectors of 384 dimensions, 4096 would fit two
    # SQLite's busy timeout does not cover the switch to WAL.
    give_up_at = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as exc:
            if "locked" not in str(exc) or time.monotonic() > give_up_at:
                raise
            time.sleep(0.01)
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Checked inside the transaction: the second of two processes sees the tables of the first.
        if count_tables(connection) == 0:
            for definition in (*TABLES.values(), *DERIVED_TABLES.values()):
                connection.execute(f"CREATE {definition}")
            write_metadata(connection, facts)
            sign_definitions(connection)
            sign_metadata(connection)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def count_tables(connection: sqlite3.Connection) -> int:
    """Return the number of tables and indexes in the file."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(tables)


def read_version(connection: sqlite3.Connection) -> int:
    """Return the schema version; 0 for an empty database."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _facts_checksum(facts: Mapping[str, str]) -> str:
    pairs = sorted((name, value) for name, value in facts.items() if name != "checksum")
    return str(checksum(len(pairs), *(part.encode() for pair in pairs for part in pair)))


def _definitions_checksum(connection: sqlite3.Connection, version: int) -> str:
    names = (*TABLES, *DERIVED_TABLES) if version >= POSTINGS_SINCE else _LEGACY_DEFINITIONS
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    definitions = dict(connection.execute("SELECT name, sql FROM sqlite_master"))
    parts = [f"{name} {definitions.get(name)}".encode() for name in names]
    return str(checksum(0, encoding.encode(), *parts))
