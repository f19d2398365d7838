"""Blocks of 1,024 rows: how long each document is, which rows are there, and the bit codes of their vectors.

A row's number says where it stands: block = row // 1024. Blocks are what a reader keeps in memory; a write
stamps those it changes with its generation, so that a reader reads these again and no others.
"""

from __future__ import annotations

import sqlite3
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence

from resift._internal.arrays import Array, np
from resift.stores.sqlite_checks import Damage, checksum
from resift.stores.sqlite_schema import Connection

# Small enough that a write changes little, large enough that a million rows are a thousand blocks.
ROWS = 1024
ABSENT = -1
"""Length of a row that holds no document."""

SPARSE = ROWS // 4
"""A block with fewer documents than this is emptied into the last one, so that deleting frees memory."""


def words_per_code(dimension: int) -> int:
    """Return how many 64-bit words the code of a vector takes."""
    return -(-dimension // 64)


def read_lengths(connection: sqlite3.Connection, after: int = -1) -> Iterator[tuple[int, array[int]]]:
    """Yield (block, lengths) of the blocks that were written after a generation."""
    statement = "SELECT block, lengths, checksum FROM row_blocks WHERE generation > ?"
    for block, lengths, check in connection.execute(statement, (after,)):
        yield block, _lengths(block, lengths, check)


def read_codes(
    connection: sqlite3.Connection, blocks: Sequence[int], dimension: int
) -> Iterator[tuple[int, Array]]:
    """Yield (block, codes) of these blocks: one array of 64-bit words, word by word over all rows."""
    statement = "SELECT codes, checksum FROM code_blocks WHERE block = ?"
    for block in blocks:
        found = connection.execute(statement, (block,)).fetchone()
        size = words_per_code(dimension) * ROWS * 8
        if found is None or checksum(block, found[0]) != found[1] or len(found[0]) != size:
            raise Damage("code_blocks", block)
        yield block, np.frombuffer(found[0], dtype="<u8").reshape(-1, ROWS)


def codes_of(vectors: Array) -> Array:
    """Return the sign bits of some vectors, one row of 64-bit words each."""
    wide = np.zeros((len(vectors), words_per_code(vectors.shape[1]) * 64), dtype=bool)
    wide[:, : vectors.shape[1]] = vectors > 0
    return np.packbits(wide, axis=1, bitorder="little").view("<u8")


class BlockChanges:
    """What one transaction changes in the blocks; `flush` writes it."""

    def __init__(self, connection: Connection, generation: int) -> None:
        self._connection = connection
        self._generation = generation
        self._lengths: dict[int, array[int]] = {}
        self._vectors: dict[int, dict[int, bytes]] = {}
        self._attributes: dict[tuple[str, object], tuple[int, int]] = {}
        self.documents = 0
        self.tokens = 0

    def add(self, row: int, length: int, vector: bytes | None) -> None:
        """Note a new row."""
        self._of(row // ROWS)[row % ROWS] = length
        if vector is not None:
            self._vectors.setdefault(row // ROWS, {})[row % ROWS] = vector
        self.documents += 1
        self.tokens += length

    def remove(self, row: int) -> None:
        """Note that a row is gone; its code stays until the block is emptied, unseen."""
        lengths = self._of(row // ROWS)
        # A row that is deleted twice would make the counts of the file wrong from then on.
        if lengths[row % ROWS] == ABSENT:
            raise Damage("row_blocks", row // ROWS)
        self.documents -= 1
        self.tokens -= lengths[row % ROWS]
        lengths[row % ROWS] = ABSENT

    def count(self, key: str, value: object, row: int, step: int) -> None:
        """Note an attribute that a row has now (1) or no longer has (-1)."""
        rows, total = self._attributes.get((key, value), (0, 0))
        self._attributes[key, value] = rows + step, total + step * row

    def sparse_rows(self) -> list[int]:
        """Return the rows of changed blocks that hold few documents; the newest block may be so."""
        newest = _newest_block(self._connection)
        return [
            block * ROWS + at
            for block, lengths in self._lengths.items()
            if block != newest and ROWS - lengths.count(ABSENT) < SPARSE
            for at, length in enumerate(lengths)
            if length != ABSENT
        ]

    def flush(self) -> None:
        """Write the changed blocks; those without any document keep nothing but their generation."""
        for block, lengths in self._lengths.items():
            # The empty record stays: readers must learn that the block is gone.
            packed = b"" if lengths.count(ABSENT) == ROWS else _little(lengths)
            self._connection.execute(
                "INSERT OR REPLACE INTO row_blocks VALUES (?, ?, ?, ?)",
                (block, self._generation, packed, checksum(block, packed)),
            )
            if not packed:
                self._connection.execute("DELETE FROM code_blocks WHERE block = ?", (block,))
            elif block in self._vectors:
                write_codes(self._connection, block, self._vectors[block])

        self._write_sums()

    def _write_sums(self) -> None:
        if not self._connection.checked:
            return
        changed = [(*pair, *sums) for pair, sums in self._attributes.items() if sums != (0, 0)]
        self._connection.executemany(
            "INSERT INTO attribute_sums VALUES (?, ?, ?, ?) ON CONFLICT (key, value) "
            "DO UPDATE SET rows = rows + excluded.rows, total = total + excluded.total",
            changed,
        )
        fewer = [(key, value) for key, value, rows, _ in changed if rows < 0]
        gone = "DELETE FROM attribute_sums WHERE key = ? AND value = ? AND rows = 0"
        self._connection.executemany(gone, fewer)

    def _of(self, block: int) -> array[int]:
        if block not in self._lengths:
            statement = "SELECT lengths, checksum FROM row_blocks WHERE block = ?"
            found = self._connection.execute(statement, (block,)).fetchone()
            empty = array("i", [ABSENT]) * ROWS
            self._lengths[block] = empty if found is None else _lengths(block, *found)
        return self._lengths[block]


def write_codes(connection: sqlite3.Connection, block: int, vectors: Mapping[int, bytes]) -> None:
    """Set the codes of some rows of a block, by their offset in it."""
    rows = np.frombuffer(b"".join(vectors.values()), dtype="<f4").reshape(len(vectors), -1)
    new = codes_of(rows)
    found = connection.execute("SELECT codes, checksum FROM code_blocks WHERE block = ?", (block,)).fetchone()
    if found is None:
        codes = np.zeros((new.shape[1], ROWS), dtype="<u8")
    elif checksum(block, found[0]) != found[1] or len(found[0]) != new.shape[1] * ROWS * 8:
        raise Damage("code_blocks", block)
    else:
        codes = np.frombuffer(found[0], dtype="<u8").reshape(-1, ROWS).copy()
    # Word by word over all rows, so that a scan reads memory in one direction.
    codes[:, list(vectors)] = new.T
    packed = codes.tobytes()
    connection.execute(
        "INSERT OR REPLACE INTO code_blocks VALUES (?, ?, ?)", (block, packed, checksum(block, packed))
    )


def _newest_block(connection: sqlite3.Connection) -> int:
    (row,) = connection.execute("SELECT max(row) FROM documents").fetchone()
    return -1 if row is None else int(row) // ROWS


def _lengths(block: int, packed: bytes, check: int) -> array[int]:
    if checksum(block, packed) != check or len(packed) not in (0, ROWS * 4):
        raise Damage("row_blocks", block)
    lengths = array("i", packed) if packed else array("i", [ABSENT]) * ROWS
    if sys.byteorder == "big" and packed:
        lengths.byteswap()
    return lengths


def _little(lengths: array[int]) -> bytes:
    if sys.byteorder == "little":
        return lengths.tobytes()
    swapped = lengths[:]
    swapped.byteswap()
    return swapped.tobytes()
