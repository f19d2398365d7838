"""Stored documents, their vectors and attributes, and the readers' list of rows in memory.

Rows are grouped in blocks, which record the length of each document. A write stamps the blocks it changes with
its generation, so that readers reload only those.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar
from zlib import crc32

from resift._internal.arrays import Array, np
from resift.errors import StoreError
from resift.stores import filters
from resift.stores.base import DocumentLoadError
from resift.stores.filters import AnyOf, Condition, Pattern, Test, Value
from resift.stores.sqlite import database
from resift.stores.sqlite.database import Connection, DatabaseFile, FileMetadata, IndexCorruptedError, checksum
from resift.types import JsonValue, Metadata, Where

K = TypeVar("K", str, int)

# Blocks are small enough that a write changes little. A million rows make a thousand blocks.
BLOCK_ROWS = 1024
ABSENT = -1  # length of a row without a document

_COLUMNS = "row, id, text, metadata, checksum"
_BY_ROW = f"SELECT {_COLUMNS} FROM documents WHERE row IN"  # noqa: S608
_MAX_PARAMETERS = 500  # older SQLite builds allow 999
_MAX_KNOWN_IDS = 200_000  # ids of rows returned by searches, about 20 MB


# Documents


class StoredRow(NamedTuple):
    """A stored document."""

    row: int
    id: str
    text: str
    metadata: str

    def decode_metadata(self) -> Metadata:
        """Return the metadata as a dict."""
        if self.metadata == "{}":
            return {}
        try:
            return json.loads(self.metadata)  # type: ignore[no-any-return]
        except ValueError:
            raise IndexCorruptedError("documents", self.row) from None


Columns = tuple[JsonValue, ...]  # a row of a table as SQLite returns it


class LazyDocuments:
    """The documents of a list of hits, whose texts and metadata are read from the file on first use.

    Row numbers are never reused, so a row either still has the text that the search found, or does not exist.
    """

    __slots__ = ("__weakref__", "_columns", "_file", "_loaded", "_numbers")

    def __init__(self, file: DatabaseFile, ids: Sequence[str], numbers: Sequence[int]) -> None:
        self._file = file
        self._numbers = dict(zip(ids, numbers, strict=True))
        self._columns: dict[str, Columns] = {}  # already read, but not yet verified and decoded
        self._loaded: dict[str, tuple[str, Metadata]] = {}

    def read(self, connection: Connection, ids: Collection[str] | None = None) -> None:
        """Read the columns of these documents, or of all; raise IndexCorruptedError if one does not exist."""
        numbers = self._numbers
        if ids is None:
            ids = numbers.keys() - self._columns.keys()
        for row in select_in(connection, _BY_ROW, [numbers[id] for id in ids]):
            self._columns[row[1]] = row
        for id in ids:
            if id not in self._columns or self._columns[id][0] != numbers[id]:
                raise IndexCorruptedError("documents", numbers[id])

    def is_read(self, ids: Iterable[str]) -> bool:
        """Return whether `load` can return these ids without reading the file."""
        return all(id in self._columns for id in ids)

    def load(self, ids: Sequence[str]) -> Mapping[str, tuple[str, Metadata]]:
        """Return id -> (text, metadata) of at least these documents; raise DocumentLoadError if one cannot be read."""
        loaded = self._loaded
        missing = [id for id in ids if id not in loaded]
        if missing:
            try:
                if not self.is_read(missing):
                    # A caller that reads one text often reads them all, so load all with one statement.
                    unread = [id for id in (missing if len(ids) > 1 else self._numbers) if id not in loaded]
                    with self._file.reading(reopen=True) as connection:
                        self.read(connection, unread)
                for id in missing:
                    row = _verify(self._columns[id])
                    loaded[id] = row.text, row.decode_metadata()
            except (IndexCorruptedError, StoreError) as exc:
                reason = str(exc).removesuffix(".")
                raise DocumentLoadError(
                    f"The text of {missing[0]!r} was not loaded by the search and cannot be read now: {reason}. "
                    "The document has been changed or removed since, or the file is damaged. Search again.",
                    store=exc.store if isinstance(exc, StoreError) else "sqlite",
                ) from None
        return loaded


def iterate_documents(connection: sqlite3.Connection) -> Iterator[StoredRow]:
    """Yield all documents in row order; rows may change during the iteration."""
    last = -1
    # Continue after the last key, because OFFSET would count from the start each time.
    statement = f"SELECT {_COLUMNS} FROM documents WHERE row > ? ORDER BY row LIMIT 1000"  # noqa: S608
    while rows := connection.execute(statement, (last,)).fetchall():
        yield from map(_verify, rows)
        last = rows[-1][0]


def read_rows_by_id(connection: Connection, ids: Sequence[str]) -> dict[str, StoredRow]:
    """Return id -> row for the documents that exist."""
    statement = f"SELECT {_COLUMNS} FROM documents WHERE id IN"  # noqa: S608
    rows = {row.id: row for row in map(_verify, select_in(connection, statement, ids))}
    if absent := [id for id in ids if id not in rows]:
        _check_absence(connection, absent)
    return rows


def read_rows(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, StoredRow]:
    """Return number -> row; raise IndexCorruptedError if a row does not exist."""
    rows = {row.row: row for row in map(_verify, select_in(connection, _BY_ROW, numbers))}
    if len(rows) < len(numbers):
        raise IndexCorruptedError("documents", min(set(numbers) - rows.keys()))
    return rows


def read_ids(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, str]:
    """Return row number -> id, verified against the index of ids, without reading texts."""
    ids: dict[int, str] = dict(select_in(connection, "SELECT row, id FROM documents WHERE row IN", numbers))
    again: dict[int, str] = dict(select_in(connection, "SELECT row, id FROM documents WHERE id IN", list(ids.values())))
    if len(ids) != len(numbers) or ids != again or not all(isinstance(id, str) for id in ids.values()):
        raise IndexCorruptedError("documents", "an id")
    return ids


def read_all_ids(connection: sqlite3.Connection) -> list[str]:
    """Return every id, sorted."""
    ids = [id for (id,) in connection.execute("SELECT id FROM documents ORDER BY id")]
    again = "SELECT id || '' FROM documents INDEXED BY documents_by_id ORDER BY id || ''"
    if ids != [id for (id,) in connection.execute(again)]:
        raise IndexCorruptedError("documents", "an id")
    return ids


def select_in(connection: sqlite3.Connection, statement: str, keys: Sequence[K]) -> list[Columns]:
    """Return the rows of a statement that ends with IN. The number of keys is unlimited."""
    rows: list[Columns] = []
    for start in range(0, len(keys), _MAX_PARAMETERS):
        part = keys[start : start + _MAX_PARAMETERS]
        rows += connection.execute(f"{statement} ({','.join('?' * len(part))})", part).fetchall()
    return rows


def _verify(columns: Columns) -> StoredRow:
    number, id, text, metadata, stored = columns
    # A damaged page may return a number instead of text.
    if isinstance(id, str) and isinstance(text, str) and isinstance(metadata, str):
        a, b, c = id.encode(), text.encode(), metadata.encode()
        # Same result as `checksum` with a fifth of the calls. Every search reads hundreds of rows.
        if crc32(b"%d|%d|%b|%d|%b|%d|%b" % (number, len(a), a, len(b), b, len(c), c)) == stored:
            return StoredRow(number, id, text, metadata)
    raise IndexCorruptedError("documents", number)


def _check_absence(connection: sqlite3.Connection, ids: Sequence[str]) -> None:
    """Raise IndexCorruptedError if the second index finds an id that the first did not."""
    second = "SELECT row FROM documents INDEXED BY documents_by_id WHERE id || '' IN"
    if hidden := select_in(connection, second, ids):
        raise IndexCorruptedError("documents", hidden[0][0])


# Vectors


def read_vectors(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, bytes]:
    """Return row number -> vector for the rows that have one."""
    vectors: dict[int, bytes] = {}
    statement = "SELECT row, vector, checksum FROM vectors WHERE row IN"
    for row, vector, stored in select_in(connection, statement, numbers):
        if checksum(row, vector) != stored:
            raise IndexCorruptedError("vectors", row)
        vectors[row] = vector
    return vectors


def read_vectors_by_id(connection: Connection, ids: Sequence[str]) -> dict[str, Array]:
    """Return id -> vector, without reading texts."""
    numbers = [row for (row,) in select_in(connection, "SELECT row FROM documents WHERE id IN", ids)]
    rows = read_ids(connection, numbers)
    known = set(rows.values())
    if absent := [id for id in ids if id not in known]:
        _check_absence(connection, absent)
    vectors = read_vectors(connection, numbers)
    # A file with vectors has one for every document.
    if len(vectors) < len(rows) and database.read_metadata(connection).dimension:
        raise IndexCorruptedError("vectors", min(rows.keys() - vectors.keys()))
    return {rows[row]: np.frombuffer(vector, dtype="<f4") for row, vector in vectors.items()}


def read_vector_matrix(connection: sqlite3.Connection, numbers: Sequence[int], dimension: int) -> Array:
    """Return the vectors of these rows as one matrix. The numbers must be in ascending order, and all must exist."""
    size, parts = 4 * dimension, []
    for start in range(0, len(numbers), _MAX_PARAMETERS):
        part = numbers[start : start + _MAX_PARAMETERS]
        # SQLite concatenates the vectors without holding the GIL. Reading row by row takes twice as long.
        statement = (
            "SELECT group_concat(row), group_concat(checksum), CAST(group_concat(vector, '') AS BLOB) "  # noqa: S608
            f"FROM vectors WHERE row IN ({','.join('?' * len(part))})"
        )
        rows, checksums, joined = connection.execute(statement, part).fetchone()
        joined = joined or b""
        view = memoryview(joined)
        computed = (  # same as `checksum` of each row, with fewer calls
            crc32(view[i * size : (i + 1) * size], crc32(b"%d|%d|" % (number, size))) for i, number in enumerate(part)
        )
        expected = (size * len(part), ",".join(map(str, part)), ",".join(map(str, computed)))
        if (len(joined), rows, checksums) != expected:
            # Read the vectors one by one, to report the damaged row.
            vectors = read_vectors(connection, part)
            for number in part:
                if len(vectors.get(number, b"")) != size:
                    raise IndexCorruptedError("vectors", number)
            joined = b"".join(vectors[number] for number in part)
        parts.append(joined)
    return np.frombuffer(b"".join(parts), dtype="<f4").reshape(-1, dimension)


# Row lists


def read_lengths(connection: sqlite3.Connection, after: int = -1) -> Iterator[tuple[int, array[int]]]:
    """Yield (block, document lengths) for the blocks written after this generation."""
    statement = "SELECT block, lengths, checksum FROM row_blocks WHERE generation > ?"
    for block, lengths, stored in connection.execute(statement, (after,)):
        yield block, unpack_lengths(block, lengths, stored)


def list_rows(connection: sqlite3.Connection) -> Iterator[int]:
    """Yield the row numbers of all documents, according to the blocks."""
    for block, lengths in read_lengths(connection):
        yield from (block * BLOCK_ROWS + offset for offset, length in enumerate(lengths) if length != ABSENT)


def unpack_lengths(block: int, packed: bytes, stored: int) -> array[int]:
    """Return the document lengths of a stored block."""
    if checksum(block, packed) != stored or len(packed) not in (0, BLOCK_ROWS * 4):
        raise IndexCorruptedError("row_blocks", block)
    return array("i", packed) if packed else array("i", [ABSENT]) * BLOCK_ROWS


def write_lengths(connection: sqlite3.Connection, block: int, lengths: array[int], generation: int) -> bytes:
    """Write the lengths of a block; return their stored form, which is empty if the block has no documents."""
    packed = b"" if lengths.count(ABSENT) == BLOCK_ROWS else lengths.tobytes()
    statement = "INSERT OR REPLACE INTO row_blocks VALUES (?, ?, ?, ?)"
    connection.execute(statement, (block, generation, packed, checksum(block, packed)))
    return packed


class RowList:
    """The rows of one generation of the file. Immutable.

    The slot of a row is its position in the arrays: the position of its block among the blocks in memory, times
    the block size, plus its offset in the block. Blocks are in ascending order, so slots have the order of rows.
    """

    def __init__(self, file: FileMetadata, lengths_by_block: dict[int, array[int]]) -> None:
        self.file = file
        self.lengths_by_block = lengths_by_block
        self.blocks = sorted(lengths_by_block)
        self._positions = {block: position for position, block in enumerate(self.blocks)}
        self.lengths = array("i")
        for block in self.blocks:
            self.lengths.extend(lengths_by_block[block])
        self._block_starts: Array | None = None
        self._present: Array | None = None
        self._ids: dict[int, str] = {}
        self.has_empty = 0 in self.lengths  # whether some documents have no terms

    def read_ids(self, connection: sqlite3.Connection, rows: Sequence[int]) -> list[str]:
        """Return the ids of these rows. Verified ids are cached for later searches."""
        known = self._ids if len(self._ids) <= _MAX_KNOWN_IDS else {}
        if missing := [row for row in rows if row not in known]:
            known.update(read_ids(connection, missing))
        self._ids = known
        return list(map(known.__getitem__, rows))

    def find_slot(self, row: int) -> int:
        """Return the slot of a row, or -1 if the row does not exist."""
        slot = self._positions.get(row // BLOCK_ROWS, -1) * BLOCK_ROWS + row % BLOCK_ROWS
        return -1 if slot < 0 or self.lengths[slot] == ABSENT else slot

    def rows_at(self, slots: Array) -> Array:
        """Return the row numbers of these slots."""
        rows: Array = np.asarray(self.blocks, dtype=np.int64)[slots // BLOCK_ROWS] * BLOCK_ROWS + slots % BLOCK_ROWS
        return rows

    def find_slots(self, rows: Sequence[int] | Array) -> tuple[Array, Array]:
        """Return the slots of the rows that exist, and a mask that marks those rows."""
        if self._block_starts is None:
            starts = np.full((self.blocks[-1] if self.blocks else 0) + 1, -1, dtype=np.int64)
            starts[self.blocks] = np.arange(len(self.blocks)) * BLOCK_ROWS
            self._block_starts = starts
        starts = self._block_starts
        rows = np.asarray(rows, dtype=np.int64)
        # Posting lists may contain deleted rows, even beyond the last block.
        within = (rows >= 0) & (rows < len(starts) * BLOCK_ROWS)
        start = starts[np.where(within, rows // BLOCK_ROWS, 0)]
        slots = start + rows % BLOCK_ROWS
        present = within & (start >= 0)
        present[present] = self.lengths_array()[slots[present]] != ABSENT
        return slots[present], present

    def lengths_array(self) -> Array:
        """Return the lengths as a numpy array that shares their memory."""
        return np.frombuffer(self.lengths, dtype=np.int32) if self.lengths else np.zeros(0, dtype=np.int32)

    def mask(self, allowed: Sequence[int] | None) -> Array:
        """Return an array with 1 for each slot that a search may return, and 0 for the others."""
        if allowed is not None:
            passing = np.zeros(len(self.lengths), dtype=np.uint8)
            passing[self.find_slots(allowed)[0]] = 1
            return passing
        if self._present is None:
            self._present = (self.lengths_array() != ABSENT).astype(np.uint8)
        return self._present


class RowListCache:
    """Keeps one RowList up to date with the file; call its methods with the store's lock held.

    A snapshot begins with its first read, so every snapshot is at least as new as the rows in memory.
    """

    def __init__(self) -> None:
        self._rows: RowList | None = None
        self._facts: list[tuple[str, str]] = []
        self._counts: dict[int, int] = {}  # block -> number of documents

    def load(self, connection: Connection) -> RowList:
        """Return the rows in the connection's snapshot."""
        facts = connection.execute(database.SELECT_FACTS).fetchall()
        old = self._rows
        if old is not None and facts == self._facts:  # already verified
            connection.version = old.file.version
            return old
        file = database.parse_metadata(facts)
        connection.version = file.version  # another process may have converted the file
        if old is not None and old.file.generation == file.generation:
            return old
        (newest,) = connection.execute("SELECT max(generation) FROM row_blocks").fetchone()
        # The page of the facts predates the last write, or a damaged page returned another type.
        if newest is not None and (type(newest) is not int or newest > file.generation):
            raise IndexCorruptedError("facts", "all")
        if old is None or old.file.version != file.version:
            old, self._counts = None, {}
        lengths_by_block = {} if old is None else dict(old.lengths_by_block)
        counts = dict(self._counts)
        for block, lengths in read_lengths(connection, -1 if old is None else old.file.generation):
            counts[block] = BLOCK_ROWS - lengths.count(ABSENT)
            if counts[block]:
                lengths_by_block[block] = lengths
            else:
                lengths_by_block.pop(block, None)
        if sum(counts.values()) != file.documents:
            raise IndexCorruptedError("row_blocks", "all")  # a damaged index hides some blocks
        self._rows, self._counts, self._facts = RowList(file, lengths_by_block), counts, facts
        return self._rows


# Metadata filters: the attributes of each row, and the sums that detect missing rows

_MAX_LENGTH = 200  # longer strings are stored as a digest
_INT64 = 2**63
# This takes one index lookup per key; DISTINCT would read the whole index.
_KEYS = (
    "WITH RECURSIVE keys(key) AS (SELECT min(key) FROM attributes UNION ALL "
    "SELECT (SELECT min(key) FROM attributes WHERE key > keys.key) FROM keys WHERE keys.key IS NOT NULL) "
    "SELECT key FROM keys WHERE key IS NOT NULL"
)
_EXAMPLES = "SELECT DISTINCT value FROM attributes WHERE key = ? AND typeof(value) != 'blob' LIMIT 2"
_IS_NUMBER = "typeof(value) IN ('integer', 'real')"
_IS_TEXT = "typeof(value) = 'text'"
_IS_DIGEST = "value >= X'23' AND value < X'24'"  # bytes that begin with "#"; this form can use the index


def list_attributes(metadata: Metadata) -> list[tuple[str, object]]:
    """Return the distinct (key, stored value) pairs that filters compare; each list item is a separate value."""
    pairs = ((key, _to_sql(item)) for key, value in metadata.items() for item in filters.filter_values(value))
    return list(dict.fromkeys(pairs))


def find_rows(connection: Connection, tests: Sequence[Test]) -> list[int] | None:
    """Return the rows that pass a filter, in ascending order, or None if the filter has no tests."""
    if not tests:
        return None
    if connection.version == database.LEGACY_VERSION:  # such files have no attributes for list values
        rows = iterate_documents(connection)
        return [row.row for row in rows if filters.passes_all(row.decode_metadata(), tests)]
    return sorted(_find_rows_passing_all(connection, tests))


def explain_stored_filter(connection: Connection, where: Where) -> dict[str, str]:
    """Return key -> note for each condition that no document passes, or whose key no document has."""
    if connection.version == database.LEGACY_VERSION:
        return filters.explain_filter(where, [row.decode_metadata() for row in iterate_documents(connection)])
    known = [key for (key,) in connection.execute(_KEYS)]
    notes: dict[str, str] = {}
    for condition in filters.list_conditions(filters.parse_filter(where)):
        if condition.key not in known:
            notes[condition.key] = filters.unknown_key_note(condition.key, known)
        elif not _find_rows_passing(connection, condition):
            values = connection.execute(_EXAMPLES, (condition.key,))
            notes[condition.key] = filters.unmatched_note(condition.key, [value for (value,) in values])
    return notes


def _to_sql(value: Value) -> object:
    """Return a value that SQLite compares as `filters` does; types that SQLite lacks become bytes."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _INT64 else value
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else b"#" + filters.canonical_text(value).encode()[:_MAX_LENGTH]
    if len(value) <= _MAX_LENGTH:
        return value
    return b"#" + hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


def _find_rows_passing_all(connection: Connection, tests: Sequence[Test]) -> set[int]:
    if not tests:
        return _list_all_rows(connection)
    first, *others = [_find_rows_passing(connection, test) for test in tests]
    return set(first).intersection(*others)


def _find_rows_passing(connection: Connection, test: Test) -> Collection[int]:
    """Return the rows that pass one test; a row may appear twice."""
    if isinstance(test, AnyOf):
        return set[int]().union(*(_find_rows_passing_all(connection, tests) for tests in test.filters))
    # Subtract the equal rows: documents without the key pass, and they are not in the attributes.
    if test.operator == "!=":
        return _list_all_rows(connection) - set(_find_rows_passing(connection, test._replace(operator="=")))
    return _find_equal(connection, test) if test.operator == "=" else _find_in_range(connection, test)


def _find_equal(connection: Connection, test: Condition) -> list[int]:
    plain = [_to_sql(value) for value in test.values if not isinstance(value, Pattern)]
    # Only `*` is special in our patterns, so escape the other special characters of GLOB.
    patterns = [re.sub(r"[?[]", r"[\g<0>]", value.text) for value in test.values if isinstance(value, Pattern)]
    choices = [f"value IN ({','.join('?' * len(plain))})"] * bool(plain)
    choices += [f"({_IS_TEXT} AND value GLOB ?)"] * len(patterns)
    rows = _select(connection, test.key, " OR ".join(choices) or "0", *plain, *patterns)
    return rows + (_test_documents(connection, test, _IS_DIGEST) if patterns else [])


def _find_in_range(connection: Connection, test: Condition) -> list[int]:
    limit = test.values[0]
    if filters.is_date(limit):
        return _find_dates(connection, test)
    # SQLite integers have 64 bits. Larger values are stored as bytes and compared in Python.
    if isinstance(limit, int) and not -_INT64 <= limit < _INT64:
        return _test_documents(connection, test, f"{_IS_NUMBER} OR typeof(value) = 'blob'")
    kind = _IS_TEXT if isinstance(limit, str) else _IS_NUMBER
    rows = _select(connection, test.key, f"{kind} AND value {test.operator} ?", limit)
    return rows + _test_documents(connection, test, _IS_DIGEST)


def _find_dates(connection: Connection, test: Condition) -> list[int]:
    """Compare dates in Python: SQL would compare their different formats and time zones as text."""
    statement = f"SELECT value, row FROM attributes WHERE key = ? AND {_IS_TEXT}"  # noqa: S608
    rows_by_value: dict[str, list[int]] = {}
    for value, row in connection.execute(statement, (test.key,)):
        if type(row) is not int:  # a damaged page may return another type
            raise IndexCorruptedError("attributes", "a filter")
        rows_by_value.setdefault(value, []).append(row)
    statement = f"SELECT value, rows, total FROM attribute_sums WHERE key = ? AND {_IS_TEXT}"  # noqa: S608
    sums = {value: (rows, total) for value, rows, total in connection.execute(statement, (test.key,))}
    if sums != {value: (len(rows), sum(rows)) for value, rows in rows_by_value.items()}:
        raise IndexCorruptedError("attributes", "a filter")
    return [row for value, rows in rows_by_value.items() if test.accepts(value) for row in rows]


def _test_documents(connection: Connection, test: Condition, kind: str) -> list[int]:
    """Return the rows with a value of this kind whose metadata passes the test."""
    numbers = list(dict.fromkeys(_select(connection, test.key, kind)))  # a list gives a row several values
    rows = read_rows(connection, numbers)
    return [row for row in numbers if test.accepts(rows[row].decode_metadata().get(test.key))]


def _select(connection: Connection, key: str, condition: str, *parameters: object) -> list[int]:
    """Return the rows with a value that meets the condition; compare their number and sum with the recorded ones."""
    where = f"WHERE key = ? AND ({condition})"
    selected = connection.execute(f"SELECT row FROM attributes {where}", (key, *parameters))  # noqa: S608
    rows = [row for (row,) in selected]
    recorded = "SELECT coalesce(sum(rows), 0), coalesce(sum(total), 0) FROM attribute_sums"
    sums = connection.execute(f"{recorded} {where}", (key, *parameters)).fetchone()
    # A damaged page may return text instead of a number.
    if not all(type(row) is int for row in rows) or sums != (len(rows), sum(rows)):
        raise IndexCorruptedError("attributes", "a filter")
    return rows


def _list_all_rows(connection: Connection) -> set[int]:
    rows = set(list_rows(connection))
    if len(rows) != database.read_metadata(connection).documents:
        raise IndexCorruptedError("row_blocks", "all")
    return rows
