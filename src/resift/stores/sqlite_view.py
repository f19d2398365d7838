"""The rows of a file as one reader keeps them: lengths by block, in step with the file's generation."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Sequence

from resift._internal.arrays import Array, np
from resift.stores import sqlite_version_1 as version_1
from resift.stores.sqlite_blocks import ABSENT, ROWS, read_lengths
from resift.stores.sqlite_checks import Damage
from resift.stores.sqlite_schema import FileFacts


class RowView:
    """The rows as of one generation; never changes.

    A row's place is its position in memory: the position of its block among those kept, times the size of a
    block, and its offset there. Blocks are kept in ascending order, so places order as rows do.
    """

    def __init__(self, facts: FileFacts, lengths_by_block: dict[int, array[int]]) -> None:
        self.facts = facts
        self.lengths_by_block = lengths_by_block
        self.blocks = sorted(lengths_by_block)
        self.position = {block: at for at, block in enumerate(self.blocks)}
        self.lengths = array("i")
        for block in self.blocks:
            self.lengths.extend(lengths_by_block[block])
        self._block_starts: Array | None = None
        self._present: Array | None = None

    def row_at(self, place: int) -> int:
        """Return the row that stands at a place."""
        return self.blocks[place // ROWS] * ROWS + place % ROWS

    def place_of(self, row: int) -> int:
        """Return the place of a row, or -1 where it is not there."""
        position = self.position.get(row // ROWS)
        if position is None:
            return -1
        place = position * ROWS + row % ROWS
        return -1 if self.lengths[place] == ABSENT else place

    def places_of(self, rows: Sequence[int] | Array) -> tuple[Array, Array]:
        """Return the places of many rows (numpy), and for each row whether it is there."""
        starts = self._starts()
        rows = np.asarray(rows, dtype=np.int64)
        # Postings may name rows that were deleted since, also behind the last block.
        within = (rows >= 0) & (rows < len(starts) * ROWS)
        start = starts[np.where(within, rows // ROWS, 0)]
        places = start + rows % ROWS
        present = within & (start >= 0)
        present[present] = self.lengths_array()[places[present]] != ABSENT
        return places[present], present

    def rows_at(self, places: Array) -> Array:
        """Return the rows that stand at many places (numpy)."""
        rows: Array = np.asarray(self.blocks, dtype=np.int64)[places // ROWS] * ROWS + places % ROWS
        return rows

    def lengths_array(self) -> Array:
        """Return the lengths as an array that shares their memory."""
        return np.frombuffer(self.lengths, dtype=np.int32) if self.lengths else np.zeros(0, dtype=np.int32)

    def mask(self, allowed: Sequence[int] | None) -> Array:
        """Return 1 for the places that may be found, as bytes (numpy)."""
        if allowed is not None:
            passing = np.zeros(len(self.lengths), dtype=np.uint8)
            passing[self.places_of(allowed)[0]] = 1
            return passing
        if self._present is None:
            self._present = (self.lengths_array() != ABSENT).astype(np.uint8)
        return self._present

    def _starts(self) -> Array:
        if self._block_starts is None:
            starts = np.full((self.blocks[-1] if self.blocks else 0) + 1, -1, dtype=np.int64)
            starts[self.blocks] = np.arange(len(self.blocks)) * ROWS
            self._block_starts = starts
        return self._block_starts


class RowViews:
    """Keeps one RowView in step with the file; call under the store's lock."""

    def __init__(self) -> None:
        self._view: RowView | None = None
        self._present: dict[int, int] = {}  # documents by block

    def current(self, connection: sqlite3.Connection, facts: FileFacts) -> RowView:
        """Return the view of the connection's snapshot."""
        old = self._view
        if old is not None and old.facts.generation == facts.generation:
            return old
        # Version 1 has no generations of blocks: everything is read anew.
        if old is None or facts.version == 1 or old.facts.version != facts.version:
            old, self._view, self._present = None, None, {}
        if facts.version == 1:
            held = dict(version_1.read_lengths(connection))
            sizes = [length for lengths in held.values() for length in lengths if length != ABSENT]
            facts = facts._replace(documents=len(sizes), tokens=sum(sizes))
            return self._advanced(facts, held.items())
        after = -1 if old is None else old.facts.generation
        return self._advanced(facts, read_lengths(connection, after))

    def _advanced(self, facts: FileFacts, changed: Iterable[tuple[int, array[int]]]) -> RowView:
        held = {} if self._view is None else dict(self._view.lengths_by_block)
        present = dict(self._present)
        for block, lengths in changed:
            present[block] = ROWS - lengths.count(ABSENT)
            if present[block]:
                held[block] = lengths
            else:
                held.pop(block, None)
        if sum(present.values()) != facts.documents:
            raise Damage("row_blocks", "all")  # a damaged index of theirs does not show all of them
        self._view, self._present = RowView(facts, held), present
        return self._view
