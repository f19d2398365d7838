"""Rows in and out of the database file: write, remove, fetch. Plain SQL on a lent connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeVar
from zlib import crc32

from resift._internal.arrays import Array, np
from resift.errors import StoreError
from resift.stores.documents import DamagedDocument
from resift.stores.sqlite_attributes import attributes_of
from resift.stores.sqlite_blocks import BlockChanges
from resift.stores.sqlite_checks import Damage, checksum
from resift.stores.sqlite_schema import SCHEMA_VERSION, Connection, read_facts, sign_facts, write_facts
from resift.types import Hit, JsonMapping, Metadata, to_json

K = TypeVar("K", str, int)

_DOCUMENTS = "SELECT row, id, text, metadata, checksum FROM documents WHERE"
_MOST_PARAMETERS = 500  # older SQLite builds allow 999
_VECTORS = "SELECT row, vector, checksum FROM vectors WHERE row IN"
_JOINED = (
    "SELECT group_concat(row), group_concat(checksum), CAST(group_concat(vector, '') AS BLOB) "
    "FROM vectors WHERE row IN"
)
# By key and not OFFSET, which would count from the beginning each time.
_AFTER = "SELECT row, id, text, metadata, checksum FROM documents WHERE row > ? ORDER BY row LIMIT 1000"


class Row(NamedTuple):
    """One stored document."""

    row: int
    id: str
    text: str
    metadata: str

    def checksum(self) -> int:
        """Return the checksum of what was written."""
        id, text, metadata = self.id.encode(), self.text.encode(), self.metadata.encode()
        # The same number as `checksum` of these parts, in a fifth of the calls: every search reads hundreds.
        parts = (self.row, len(id), id, len(text), text, len(metadata), metadata)
        return crc32(b"%d|%d|%b|%d|%b|%d|%b" % parts)

    def decoded(self) -> JsonMapping:
        """Return the metadata as it was given, as far as JSON can tell."""
        try:
            metadata: Metadata = json.loads(self.metadata)
        except ValueError:
            raise Damage("documents", self.row) from None
        return metadata


class StoredDocument:
    """A row as it was read: verified and decoded when its text or metadata is used."""

    __slots__ = ("_columns", "_file", "_loaded")

    def __init__(self, columns: tuple[Any, ...], file: TranslatesErrors) -> None:
        self._columns = columns
        self._file = file
        self._loaded: tuple[str, Metadata] | None = None

    def load(self) -> tuple[str, Metadata]:
        """Return text and metadata; raises DamagedDocument if they are not what was written."""
        if self._loaded is None:
            try:
                with self._file.errors():
                    [row] = _rows([self._columns])
                    self._loaded = row.text, row.decoded()
            except StoreError as exc:
                raise DamagedDocument(str(exc), store=exc.store) from None
        return self._loaded


class TranslatesErrors(Protocol):
    """A file that turns damage into a StoreError with the next step."""

    def errors(self) -> AbstractContextManager[None]:
        """Translate errors inside a `with` block."""
        ...


def documents_in(connection: sqlite3.Connection, *, checked: bool = True) -> Iterator[Row]:
    """Yield all documents in the order of their rows; rows may be changed meanwhile."""
    last = -1
    while rows := connection.execute(_AFTER, (last,)).fetchall():
        yield from _rows(rows, checked=checked)
        last = rows[-1][0]


def rows_by_id(connection: Connection, ids: Sequence[str]) -> dict[str, Row]:
    """Return the rows of these ids."""
    found = {row.id: row for row in _select(connection, "id", ids)}
    _refuse_hidden(connection, [id for id in ids if id not in found])
    return found


def rows_by_number(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, Row]:
    """Return the rows of these row numbers, all of which must be there."""
    found = {row.row: row for row in _select(connection, "row", numbers)}
    if missing := [number for number in numbers if number not in found]:
        raise Damage("documents", missing[0])
    return found


def stored_documents(
    connection: sqlite3.Connection, numbers: Sequence[int], file: TranslatesErrors
) -> dict[int, tuple[str, StoredDocument]]:
    """Return row number -> (id, document) without verifying any; all must be there."""
    found = {}
    for some in _slices(numbers):
        for columns in connection.execute(f"{_DOCUMENTS} row IN ({','.join('?' * len(some))})", some):
            number, id, text, *_ = columns
            document = StoredDocument(columns, file)
            if not isinstance(id, str):  # a damaged page may hand out a number where a text was
                raise Damage("documents", number)
            if text == "":  # fusion looks for the text of such a hit in other lists
                document.load()
            found[number] = id, document
    if missing := [number for number in numbers if number not in found]:
        raise Damage("documents", missing[0])
    return found


def ids_by_number(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, str]:
    """Return the ids of these row numbers, without reading their texts; checked against the index of ids."""
    found = _pairs(connection, "row", numbers)
    if len(found) != len(numbers) or found != _pairs(connection, "id", list(found.values())):
        raise Damage("documents", "an id")
    return found


def all_ids(connection: Connection) -> list[str]:
    """Return every id, sorted."""
    found = [id for (id,) in connection.execute("SELECT id FROM documents ORDER BY id")]
    if connection.checked:
        again = "SELECT id || '' FROM documents INDEXED BY documents_by_id ORDER BY id || ''"
        if found != [id for (id,) in connection.execute(again)]:
            raise Damage("documents", "an id")
    return found


def metadata_text(hit: Hit) -> str:
    """Return the metadata as the file keeps it."""
    return to_json(dict(hit.metadata))


def vectors_by_row(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, bytes]:
    """Return the stored vectors of these rows."""
    return dict(_checked_vectors(connection, _VECTORS, numbers))


def vector_matrix(connection: sqlite3.Connection, numbers: Sequence[int], dimension: int) -> Array:
    """Return the vectors of these rows, given in ascending order and all there, as one matrix."""
    parts = [_joined_vectors(connection, some, 4 * dimension) for some in _slices(numbers)]
    return np.frombuffer(b"".join(parts), dtype="<f4").reshape(-1, dimension)


def vectors_by_id(connection: Connection, ids: Sequence[str]) -> dict[str, bytes]:
    """Return the stored vectors of these ids, without reading their texts."""
    rows = _pairs(connection, "id", ids)
    if rows != _pairs(connection, "row", list(rows)):
        raise Damage("documents", "an id")
    found = set(rows.values())
    _refuse_hidden(connection, [id for id in ids if id not in found])
    return {rows[row]: vector for row, vector in vectors_by_row(connection, list(rows)).items()}


def write(
    connection: sqlite3.Connection,
    changes: BlockChanges,
    hit: Hit,
    terms: Sequence[str],
    vector: bytes | None,
) -> None:
    """Insert a document with its terms, vector and attributes; the id must be free."""
    metadata = metadata_text(hit)
    cursor = connection.execute(
        "INSERT INTO documents (id, text, metadata, checksum) VALUES (?, ?, ?, 0)",
        (hit.id, hit.text, metadata),
    )
    row = cursor.lastrowid or 0
    # The checksum covers the row's number, which is known only after the insert.
    check = Row(row, hit.id, hit.text, metadata).checksum()
    connection.execute("UPDATE documents SET checksum = ? WHERE row = ?", (check, row))
    connection.execute("INSERT INTO terms (rowid, words) VALUES (?, ?)", (row, " ".join(terms)))
    if vector is not None:
        connection.execute("INSERT INTO vectors VALUES (?, ?, ?)", (row, vector, checksum(row, vector)))
    # What was read back from JSON is what a search returns, so that is what filters see.
    write_attributes(connection, changes, row, json.loads(metadata))
    changes.add(row, len(terms), vector)


def write_attributes(
    connection: sqlite3.Connection, changes: BlockChanges, row: int, metadata: Metadata
) -> None:
    """Insert what filters see of a document."""
    for key, value in attributes_of(metadata):
        connection.execute("INSERT INTO attributes VALUES (?, ?, ?)", (key, value, row))
        changes.count(key, value, row, 1)


def index_lists(connection: Connection) -> None:
    """Add the attributes that files of version 2 leave out; the file is of this version afterwards."""
    facts = read_facts(connection)
    changes = BlockChanges(connection, facts.generation + 1)
    for row in documents_in(connection):
        if "[" in row.metadata:
            metadata = row.decoded()
            held = attributes_of(metadata, lists=False)
            for key, value in attributes_of(metadata):
                if (key, value) not in held:
                    connection.execute("INSERT INTO attributes VALUES (?, ?, ?)", (key, value, row.row))
                    changes.count(key, value, row.row, 1)
    changes.flush()
    write_facts(connection, {"lists": "1"})
    sign_facts(connection)
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def remove(connection: sqlite3.Connection, changes: BlockChanges, row: Row, terms: Sequence[str]) -> None:
    """Delete a document everywhere; `terms` are those that it was written with."""
    # FTS5 forgets a document only when given exactly what it was told.
    connection.execute(
        "INSERT INTO terms (terms, rowid, words) VALUES ('delete', ?, ?)", (row.row, " ".join(terms))
    )
    connection.execute("DELETE FROM vectors WHERE row = ?", (row.row,))
    for key, value in attributes_of(row.decoded()):
        connection.execute(
            "DELETE FROM attributes WHERE key = ? AND value = ? AND row = ?", (key, value, row.row)
        )
        changes.count(key, value, row.row, -1)
    connection.execute("DELETE FROM documents WHERE row = ?", (row.row,))
    changes.remove(row.row)


def _select(connection: sqlite3.Connection, column: str, keys: Sequence[Any]) -> Iterator[Row]:
    for some in _slices(keys):
        marks = ",".join("?" * len(some))
        yield from _rows(connection.execute(f"{_DOCUMENTS} {column} IN ({marks})", some))


def _pairs(connection: sqlite3.Connection, column: str, keys: Sequence[Any]) -> dict[int, str]:
    """Return row -> id, for a column `row` from the table, for `id` from its index."""
    found: dict[int, str] = {}
    for some in _slices(keys):
        marks = ",".join("?" * len(some))
        found.update(connection.execute(f"SELECT row, id FROM documents WHERE {column} IN ({marks})", some))  # noqa: S608
    return found


def _refuse_hidden(connection: Connection, ids: Sequence[str]) -> None:
    """Raise Damage where the second index knows an id that the first one does not."""
    for some in _slices(ids if connection.checked else ()):
        marks = ",".join("?" * len(some))
        second = "SELECT row FROM documents INDEXED BY documents_by_id WHERE id || '' IN"
        if hidden := connection.execute(f"{second} ({marks}) LIMIT 1", some).fetchone():
            raise Damage("documents", hidden[0])


def _rows(held: Iterable[tuple[Any, ...]], *, checked: bool = True) -> Iterator[Row]:
    for number, id, text, metadata, check in held:
        row = Row(number, id, text, metadata)
        if checked and check is not None:
            # A damaged page may hand out a number where a text was.
            texts = isinstance(id, str) and isinstance(text, str) and isinstance(metadata, str)
            if not (texts and row.checksum() == check):
                raise Damage("documents", number)
        yield row


def _joined_vectors(connection: sqlite3.Connection, numbers: Sequence[int], size: int) -> bytes:
    """Return some vectors one after the other.

    SQLite joins them in one step, which lets other threads run meanwhile; row by row it takes twice as long.
    """
    statement = f"{_JOINED} ({','.join('?' * len(numbers))})"
    rows, checks, joined = connection.execute(statement, numbers).fetchone()
    if len(joined or b"") == size * len(numbers) and rows == ",".join(map(str, numbers)):
        view = memoryview(joined)
        # The checksum of a row whose length is known, in one call less; see `checksum`.
        found = (
            crc32(view[at * size : (at + 1) * size], crc32(b"%d|%d|" % (number, size)))
            for at, number in enumerate(numbers)
        )
        if checks == ",".join(map(str, found)):
            return bytes(joined)
    # Again one by one, to name the row that is damaged.
    held = dict(_checked_vectors(connection, _VECTORS, numbers))
    for number in numbers:
        if len(held.get(number, b"")) != size:
            raise Damage("vectors", number)
    return b"".join(held[number] for number in numbers)


def _checked_vectors(
    connection: sqlite3.Connection, statement: str, numbers: Sequence[int]
) -> Iterator[tuple[int, bytes]]:
    for some in _slices(numbers):
        for row, vector, check in connection.execute(f"{statement} ({','.join('?' * len(some))})", some):
            if check is not None and checksum(row, vector) != check:
                raise Damage("vectors", row)
            yield row, vector


def _slices(values: Sequence[K]) -> Iterator[Sequence[K]]:
    for start in range(0, len(values), _MOST_PARAMETERS):
        yield values[start : start + _MOST_PARAMETERS]
