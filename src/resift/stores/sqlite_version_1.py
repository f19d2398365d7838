"""Files of version 1 (Resift 0.1): read as they are, through views that look like version 2's tables.

They have no checksums, no blocks and no codes, and their words were cut and stemmed by FTS5 itself.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator

from resift.stores.sqlite_blocks import ABSENT, ROWS

_VIEWS = (
    "CREATE TEMP VIEW documents AS SELECT row, id, text, metadata, NULL AS checksum FROM main.documents",
    "CREATE TEMP VIEW vectors AS SELECT row, vector, NULL AS checksum FROM main.vectors",
    "CREATE TEMP VIEW attributes AS SELECT key, CASE "
    "WHEN value IN ('true', 'false') OR value LIKE '#%' THEN CAST(value AS BLOB) "
    "ELSE json_extract(value, '$') END AS value, row FROM main.attributes",
)
_STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these "
    "they this to was will with"
)


def show_as_version_2(connection: sqlite3.Connection) -> None:
    """Give a connection views with the columns of version 2, and tables to cut queries into words."""
    (tokenizer,) = connection.execute("SELECT value FROM facts WHERE name = 'tokenizer'").fetchone()
    for statement in (
        *_VIEWS,
        f"CREATE VIRTUAL TABLE temp.asked USING fts5(text, content='', tokenize='{tokenizer}')",
        "CREATE VIRTUAL TABLE temp.asked_terms USING fts5vocab(temp, asked, instance)",
    ):
        connection.execute(statement)


def show_as_it_is(connection: sqlite3.Connection) -> None:
    """Take the views away again."""
    for view in ("documents", "vectors", "attributes"):
        connection.execute(f"DROP VIEW temp.{view}")


def read_lengths(connection: sqlite3.Connection) -> Iterator[tuple[int, array[int]]]:
    """Yield (block, lengths) of all documents."""
    block, lengths = -1, array("i")
    for row, size in connection.execute("SELECT id, sz FROM words_docsize ORDER BY id"):
        if row // ROWS != block:
            if block >= 0:
                yield block, lengths
            block, lengths = row // ROWS, array("i", [ABSENT]) * ROWS
        lengths[row % ROWS] = _varint(size)
    if block >= 0:
        yield block, lengths


def query_terms(connection: sqlite3.Connection, query: str) -> list[str]:
    """Return the query's terms exactly as the file's tokenizer writes them; stop words only if alone."""
    terms, stop_words = _terms(connection, query), set(_terms(connection, _STOP_WORDS))
    return [term for term in terms if term not in stop_words] or terms


def _terms(connection: sqlite3.Connection, text: str) -> list[str]:
    connection.execute("INSERT INTO temp.asked (asked) VALUES ('delete-all')")
    connection.execute("INSERT INTO temp.asked (rowid, text) VALUES (1, ?)", (text,))
    return [term for (term,) in connection.execute("SELECT term FROM temp.asked_terms ORDER BY offset")]


def _varint(size: bytes) -> int:
    """Return a document's length in words from FTS5's %_docsize table (one varint per column)."""
    value = 0
    for byte in size:
        value = value << 7 | byte & 0x7F
    return value
