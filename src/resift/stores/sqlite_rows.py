"""Rows in and out of the database file: write, remove, fetch, filter. Plain SQL on a lent connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from resift.stores.filtering import Where, conditions, is_scalar, value_key
from resift.types import Hit, to_json

_MOST_REMEMBERED = 10_000  # removals; a reader that lags further behind reads the list of rows anew
_MOST_PARAMETERS = 500  # older SQLite builds allow 999


class Row(NamedTuple):
    """One stored document."""

    row: int
    id: str
    text: str
    metadata: str


def rows_by_id(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, Row]:
    """Return the rows of these ids."""
    return {row.id: row for row in _select(connection, "id", ids)}


def rows_by_number(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, Row]:
    """Return the rows of these row numbers."""
    return {row.row: row for row in _select(connection, "row", numbers)}


def ids_by_number(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, str]:
    """Return the ids of these row numbers, without reading their texts."""
    found: dict[int, str] = {}
    for some in _slices(numbers):
        marks = ",".join("?" * len(some))
        found.update(connection.execute(f"SELECT row, id FROM documents WHERE row IN ({marks})", some))  # noqa: S608
    return found


def metadata_of(row: Row) -> Mapping[str, Any]:
    """Return the metadata as it was given, as far as JSON can tell."""
    metadata: Mapping[str, Any] = json.loads(row.metadata)
    return metadata


def metadata_text(hit: Hit) -> str:
    """Return the metadata as the file keeps it."""
    return to_json(dict(hit.metadata))


def vector_of(connection: sqlite3.Connection, number: int) -> bytes | None:
    """Return the stored vector of a row, if it has one."""
    found = connection.execute("SELECT vector FROM vectors WHERE row = ?", (number,)).fetchone()
    return None if found is None else bytes(found[0])


def vectors_by_id(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, bytes]:
    """Return the stored vectors of these ids, without reading their texts."""
    found: dict[str, bytes] = {}
    for some in _slices(ids):
        marks = ",".join("?" * len(some))
        statement = f"SELECT id, vector FROM documents JOIN vectors USING (row) WHERE id IN ({marks})"  # noqa: S608
        found.update(connection.execute(statement, some))
    return found


def allowed_rows(connection: sqlite3.Connection, where: Where | None) -> list[int] | None:
    """Return the row numbers that pass the filter in ascending order, or None where all pass."""
    wanted = conditions(where)
    if not wanted:
        return None
    parts: list[str] = []
    values: list[str] = []
    for key, allowed in wanted.items():
        keys = sorted({value_key(value) for value in allowed})
        parts.append(f"SELECT row FROM attributes WHERE key = ? AND value IN ({','.join('?' * len(keys))})")  # noqa: S608
        values += [key, *keys]
    statement = " INTERSECT ".join(parts)
    return sorted(row for (row,) in connection.execute(statement, values))


def write(connection: sqlite3.Connection, hit: Hit, vector: bytes | None) -> None:
    """Insert a document with its words, vector and attributes; the id must be free."""
    metadata = metadata_text(hit)
    cursor = connection.execute(
        "INSERT INTO documents (id, text, metadata) VALUES (?, ?, ?)", (hit.id, hit.text, metadata)
    )
    row = cursor.lastrowid
    connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (row, hit.text))
    if vector is not None:
        connection.execute("INSERT INTO vectors (row, vector) VALUES (?, ?)", (row, vector))
    # What was read back from JSON is what a search returns, so that is what filters see.
    pairs = [(key, value_key(value), row) for key, value in json.loads(metadata).items() if is_scalar(value)]
    connection.executemany("INSERT INTO attributes (key, value, row) VALUES (?, ?, ?)", pairs)


def remove(connection: sqlite3.Connection, rows: Iterable[Row]) -> int:
    """Delete documents everywhere; return how many."""
    removed = 0
    for row in rows:
        # FTS5 forgets a document only when given exactly the text that it was told.
        connection.execute(
            "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)", (row.row, row.text)
        )
        connection.execute("DELETE FROM vectors WHERE row = ?", (row.row,))
        pairs = [
            (key, value_key(value), row.row) for key, value in metadata_of(row).items() if is_scalar(value)
        ]
        connection.executemany("DELETE FROM attributes WHERE key = ? AND value = ? AND row = ?", pairs)
        connection.execute("DELETE FROM documents WHERE row = ?", (row.row,))
        connection.execute("INSERT INTO removed (row) VALUES (?)", (row.row,))
        removed += 1
    if removed:
        connection.execute("UPDATE facts SET value = value + ? WHERE name = 'removals'", (removed,))
        oldest = "DELETE FROM removed WHERE number <= (SELECT max(number) FROM removed) - ?"
        connection.execute(oldest, (_MOST_REMEMBERED,))
    return removed


def removed_since(connection: sqlite3.Connection, before: int, now: int) -> list[int] | None:
    """Return the rows that went away between two counts, or None where the file no longer remembers."""
    if now - before > _MOST_REMEMBERED:
        return None
    later = "SELECT row FROM removed WHERE number > ? ORDER BY row"
    return [row for (row,) in connection.execute(later, (before,))]


def _select(connection: sqlite3.Connection, column: str, keys: Sequence[Any]) -> Iterator[Row]:
    for some in _slices(keys):
        marks = ",".join("?" * len(some))
        statement = f"SELECT row, id, text, metadata FROM documents WHERE {column} IN ({marks})"  # noqa: S608
        yield from map(Row._make, connection.execute(statement, some))


def _slices(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _MOST_PARAMETERS):
        yield values[start : start + _MOST_PARAMETERS]
