"""The tables of the database file and the facts it keeps about itself."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from typing import NamedTuple

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


def create_tables(connection: sqlite3.Connection, tokenizer: str) -> None:
    """Make a new file an index, once, also when two processes try."""
    connection.execute("PRAGMA page_size=8192")  # five 384-d vectors a page instead of two in 4096
    _use_wal(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if count_tables(connection) == 0:
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


def count_tables(connection: sqlite3.Connection) -> int:
    """Return how many tables and indexes the file has."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(tables)


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
