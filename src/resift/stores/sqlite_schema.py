"""The tables of the database file and the facts it keeps about itself."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Mapping
from typing import NamedTuple

from resift.stores.sqlite_checks import Damage, facts_checksum, schema_checksum, sign_new_word_pages

SCHEMA_VERSION = 3
READABLE_VERSIONS = (1, 2, 3)
LISTS_INDEXED_SINCE = 3  # the attributes of older files leave out metadata that is a list
APPLICATION_ID = 0x52534654  # "RSFT"
BUSY_TIMEOUT_S = 30.0

Stamp = tuple[int, int, int] | None

TABLES = {
    "facts": "TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "documents": "TABLE documents (row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, "
    "text TEXT NOT NULL, metadata TEXT NOT NULL, checksum INTEGER NOT NULL)",
    "vectors": "TABLE vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL, checksum INTEGER NOT NULL)",
    "sources": "TABLE sources (path TEXT PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID",
}
"""What was given: documents, their vectors, where they came from."""

DERIVED_TABLES = {
    "attributes": "TABLE attributes (key TEXT NOT NULL, value BLOB NOT NULL, row INTEGER NOT NULL, "
    "PRIMARY KEY (key, value, row)) WITHOUT ROWID",
    # How many rows a filter must find, and what their numbers add up to.
    "attribute_sums": "TABLE attribute_sums (key TEXT NOT NULL, value BLOB NOT NULL, rows INTEGER NOT NULL, "
    "total INTEGER NOT NULL, PRIMARY KEY (key, value)) WITHOUT ROWID",
    # Asked where the index of the UNIQUE constraint does not know an id: damage hides it from one of them. An
    # expression, so that SQLite does not take it for any other question.
    "documents_by_id": "INDEX documents_by_id ON documents (id || '')",
    "row_blocks": "TABLE row_blocks (block INTEGER PRIMARY KEY, generation INTEGER NOT NULL, "
    "lengths BLOB NOT NULL, checksum INTEGER NOT NULL)",
    "row_blocks_by_generation": "INDEX row_blocks_by_generation ON row_blocks (generation)",
    "code_blocks": "TABLE code_blocks (block INTEGER PRIMARY KEY, codes BLOB NOT NULL, "
    "checksum INTEGER NOT NULL)",
    # Terms come analysed, so the tokenizer only has to split at spaces: "ascii" leaves letters beyond ASCII
    # as they are, and all punctuation is declared to be part of a word.
    "terms": "VIRTUAL TABLE terms USING fts5(words, content='', columnsize=0, "
    """tokenize="ascii tokenchars '!#$%&()*+,-./:;<=>?@[\\]^_`{|}~'")""",
    "term_checks": "TABLE term_checks (id INTEGER PRIMARY KEY, checksum INTEGER NOT NULL)",
}
"""What follows from that and can be made anew: filters, lengths, codes, words, and what checks them."""

_FTS5_TABLES = ("terms_data", "terms_idx", "terms_config")


class Connection(sqlite3.Connection):
    """A connection that knows what it was opened on and which temporary tables it has."""

    version = SCHEMA_VERSION
    checked = False  # files of version 1 have no checksums
    stamp: Stamp = None

    def __del__(self) -> None:
        """Close without the ResourceWarning of Python 3.13: an Index need not be closed by its user."""
        with contextlib.suppress(sqlite3.ProgrammingError):  # the file could not be opened
            self.close()


class FileFacts(NamedTuple):
    """What a file says about itself; `generation` counts writes.

    `analyzer` is the version of the text analysis that made its terms, `languages` those of its stems;
    `documents` and `tokens` are what BM25 needs of the whole: how many there are, and how long together.
    """

    version: int
    generation: int
    embedder: str = ""
    dimension: int = 0
    language: str = ""
    analyzer: str = ""
    languages: frozenset[str] = frozenset()
    documents: int = 0
    tokens: int = 0
    tokenizer: str = ""

    @property
    def mean_length(self) -> float:
        """Mean number of terms of a document."""
        return self.tokens / self.documents if self.documents and self.tokens else 1.0


def read_facts(connection: sqlite3.Connection) -> FileFacts:
    """Return the facts as they are in the connection's snapshot."""
    held: Mapping[str, str] = dict(connection.execute("SELECT name, value FROM facts"))
    try:
        if "checksum" in held and held["checksum"] != facts_checksum(held):
            raise Damage("facts", "all")
        return _facts(held)
    except (KeyError, ValueError, AttributeError, TypeError):  # a damaged page hands out other types, too
        raise Damage("facts", "all") from None


def _facts(held: Mapping[str, str]) -> FileFacts:
    if "tokenizer" in held:
        return FileFacts(
            1, int(held["generation"]), held["embedder"], int(held["dimension"]), tokenizer=held["tokenizer"]
        )
    return FileFacts(
        SCHEMA_VERSION if "lists" in held else 2,
        int(held["generation"]),
        held["embedder"],
        int(held["dimension"]),
        held["language"],
        held["analyzer"],
        frozenset(held["languages"].split()),
        int(held["documents"]),
        int(held["tokens"]),
    )


def first_facts(language: str, analyzer: str) -> dict[str, str]:
    """Return the facts of a file that holds nothing yet."""
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
    }


def write_facts(connection: sqlite3.Connection, facts: Mapping[str, object]) -> None:
    """Set some facts."""
    pairs = [(name, str(value)) for name, value in facts.items()]
    connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", pairs)


def sign_facts(connection: sqlite3.Connection) -> None:
    """Bring the checksum of the facts up to date; the last step of every write."""
    held: dict[str, str] = dict(connection.execute("SELECT name, value FROM facts"))
    write_facts(connection, {"checksum": facts_checksum(held)})


def protect(connection: sqlite3.Connection) -> None:
    """Take the checksums of what a new file has besides words: definitions and facts."""
    write_facts(connection, {"schema": _definitions(connection)})
    sign_facts(connection)


def check_definitions(connection: sqlite3.Connection) -> None:
    """Raise Damage where the tables are not defined as they were made."""
    held = dict(connection.execute("SELECT name, value FROM facts WHERE name = 'schema'"))
    if held and held["schema"] != _definitions(connection):
        raise Damage("sqlite_master", "all")


def _definitions(connection: sqlite3.Connection) -> str:
    return schema_checksum(connection, [*TABLES, *DERIVED_TABLES, *_FTS5_TABLES])


def create_tables(connection: sqlite3.Connection, facts: Mapping[str, str]) -> None:
    """Make a new file an index, once, also when two processes try."""
    connection.execute("PRAGMA page_size=8192")  # five 384-d vectors a page instead of two in 4096
    _use_wal(connection)
    # Looked at inside the transaction: of two processes the second finds the tables there.
    connection.execute("BEGIN IMMEDIATE")
    try:
        if count_tables(connection) == 0:
            for definition in (*TABLES.values(), *DERIVED_TABLES.values()):
                connection.execute(f"CREATE {definition}")
            write_facts(connection, facts)
            sign_new_word_pages(connection)
            protect(connection)
            # Inside the same transaction: a file with tables always says whose it is.
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def count_tables(connection: sqlite3.Connection) -> int:
    """Return how many tables and indexes the file has."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(tables)


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Say whether the file has this table."""
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone())


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


def version_of(connection: sqlite3.Connection) -> int:
    """Return the schema version; 0 for a file that has none yet."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
