"""Checksums of what SQLite does not check: documents, vectors, blocks, words, facts. Says where, never what.

A checksum covers the row's number and the length of each part, so that rows exchanged by a damaged page and
letters moved from one column to the next are seen as well. What a checksum cannot show is that a row is not
found at all; for that filters are counted twice, and a document's id stands in two indexes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from zlib import crc32

_WATCH_WORD_PAGES = (
    # Without any constraint: FTS5 writes what it holds back before each statement that may have to be undone
    # in part, so it would do so for ever if the triggers' own statement were one.
    "CREATE TEMP TABLE IF NOT EXISTS word_pages (id)",
    "CREATE TEMP TRIGGER IF NOT EXISTS word_page_written AFTER INSERT ON main.terms_data "
    "BEGIN INSERT INTO word_pages VALUES (new.id); END",
    "CREATE TEMP TRIGGER IF NOT EXISTS word_page_removed AFTER DELETE ON main.terms_data "
    "BEGIN INSERT INTO word_pages VALUES (old.id); END",
)


class Damage(Exception):
    """A part of the file is not what was written; carries the place, never the content."""

    def __init__(self, table: str, row: object) -> None:
        super().__init__(f"table {table}, row {row}")


def checksum(row: int, *parts: bytes | None) -> int:
    """Return the CRC-32 of a row's number and parts."""
    value = crc32(b"%d" % row)
    for part in parts:
        if not isinstance(part, bytes):
            return -1  # a damaged page may hand out a number or nothing; no checksum is negative
        value = crc32(part, crc32(b"|%d|" % len(part), value))
    return value


def facts_checksum(facts: Mapping[str, str]) -> str:
    """Return the checksum of a file's facts, as one more of them."""
    held = sorted((name, value) for name, value in facts.items() if name != "checksum")
    return str(checksum(len(held), *(part.encode() for pair in held for part in pair)))


def watch_word_pages(connection: sqlite3.Connection) -> None:
    """Let this connection remember which pages of the word index FTS5 writes."""
    for statement in _WATCH_WORD_PAGES:
        connection.execute(statement)


def sign_word_pages(connection: sqlite3.Connection) -> None:
    """Take the checksums of the pages that this transaction wrote; a savepoint makes FTS5 write them."""
    connection.execute("SAVEPOINT word_pages_written")
    connection.execute("RELEASE word_pages_written")
    connection.execute("DELETE FROM term_checks WHERE id IN (SELECT id FROM temp.word_pages)")
    _sign(connection, "WHERE id IN (SELECT id FROM temp.word_pages)")
    connection.execute("DELETE FROM temp.word_pages")


def sign_new_word_pages(connection: sqlite3.Connection) -> None:
    """Take the checksums of a word index that was just made, and remember what is written from now on."""
    watch_word_pages(connection)
    _sign(connection, "")


def _sign(connection: sqlite3.Connection, which: str) -> None:
    held = connection.execute(f"SELECT id, block FROM terms_data {which}")  # noqa: S608 - our own SQL
    checks = ((number, checksum(number, block)) for number, block in held)
    connection.executemany("INSERT INTO term_checks VALUES (?, ?)", checks)


def schema_checksum(connection: sqlite3.Connection, names: Iterable[str]) -> str:
    """Return the checksum of these tables' definitions: another type of a column is another comparison."""
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    held = dict(connection.execute("SELECT name, sql FROM sqlite_master"))
    parts = [f"{name} {held.get(name)}".encode() for name in names]
    return str(checksum(0, encoding.encode(), *parts))
