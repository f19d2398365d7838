"""Search by vector: all of them exactly while they are few, candidates by bit codes when they are many."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from resift._internal.arrays import Array, np
from resift.stores.sqlite_blocks import ABSENT, ROWS, read_codes
from resift.stores.sqlite_checks import Damage, checksum
from resift.stores.sqlite_codes import CodeTable, fits, quantized_query
from resift.stores.sqlite_rows import vector_matrix
from resift.stores.sqlite_view import RowView

EXACT_UP_TO = 100_000
"""Documents that are all compared; measured, see docs/scale.md."""

_SWEEP_ROWS = 512
# BLAS stays in the calling thread for so few rows. The sweep is bound by memory, so more threads gain
# nothing, and waiting for one that a busy machine does not schedule costs ten times the sweep.
_MARGIN = 1e-5  # float32 sums of a few hundred products are off by less than this
_BATCH = 500
_MOST_BATCHES = 32


class Nearest(NamedTuple):
    """(row, cosine) of the best k and of all that tie with the last; whether others may have been missed."""

    found: list[tuple[int, float]]
    approximate: bool


class VectorView:
    """The vectors as of one generation: their codes, or all of them in memory, or neither."""

    def __init__(
        self, rows: RowView, codes: dict[int, Array] | None, vectors: dict[int, Array] | None
    ) -> None:
        self.rows = rows
        self.codes = codes
        self.vectors = vectors
        self._table = None if codes is None else CodeTable([codes[block] for block in rows.blocks])

    def best(
        self, connection: sqlite3.Connection, query: Array, k: int, allowed: Sequence[int] | None
    ) -> Nearest:
        """Return the best k by cosine.

        A fast float32 sweep finds them; their scores are then summed in float64, so that they depend
        neither on where a row lies in memory nor on the number of threads.
        """
        if not self.rows.blocks:
            return Nearest([], approximate=False)
        mask = self.rows.mask(allowed)
        # Sign bits order only roughly: several times k are read as they are.
        batch = max(_BATCH, 5 * k)
        possible = int(mask.sum())
        if self._table is None:
            return Nearest(self._swept(connection, query, k, mask), approximate=False)
        # What passes a filter may be anywhere in the order of the codes, so that more of it is read.
        if possible <= (batch if allowed is None else 4 * batch):
            rows = self.rows.rows_at(mask.nonzero()[0])
            return Nearest(_Read(connection, query).read(rows).best(k), approximate=False)
        return Nearest(self._by_codes(connection, query, k, mask, batch), approximate=True)

    def _by_codes(
        self, connection: sqlite3.Connection, query: Array, k: int, mask: Array, batch: int
    ) -> list[tuple[int, float]]:
        """Read candidates in the order of their codes until a batch brings nobody into the best k."""
        assert self._table is not None  # noqa: S101 - `best` comes here only with codes
        places = self._table.nearest(quantized_query(query), batch * _MOST_BATCHES, mask)
        rows = self.rows.rows_at(places)
        read = _Read(connection, query).read(rows[:batch])
        before: set[int] = set()
        for start in range(batch, len(rows), batch):
            now = read.rows_of_best(k)
            # A batch that changes nothing: what follows has codes that are further away still.
            if now == before:
                break
            before = now
            read.read(rows[start : start + batch])
        return read.best(k)

    def _swept(
        self, connection: sqlite3.Connection, query: Array, k: int, mask: Array
    ) -> list[tuple[int, float]]:
        scores = np.empty(len(mask), dtype=np.float32)
        for at, block in enumerate(self._matrices(connection, len(query))):
            for half in range(0, ROWS, _SWEEP_ROWS):
                out = scores[at * ROWS + half : at * ROWS + half + _SWEEP_ROWS]
                np.dot(block[half : half + _SWEEP_ROWS], query, out=out)
        # Filtered after the sweep: gathering rows first would copy most of the matrix.
        scores[mask == 0] = -np.inf
        places = _top(scores, min(k, int(mask.sum())))
        rows = self.rows.rows_at(places)
        if self.vectors is None:
            return _Read(connection, query).read(rows).best(k)
        held = [self.vectors[self.rows.blocks[place // ROWS]][place % ROWS] for place in places.tolist()]
        vectors = np.stack(held) if held else np.zeros((0, len(query)))
        return list(zip(rows.tolist(), _cosines(vectors, query), strict=True))

    def _matrices(self, connection: sqlite3.Connection, dimension: int) -> Iterator[Array]:
        for block in self.rows.blocks:
            if self.vectors is not None:
                yield self.vectors[block]
            else:
                yield read_vectors(connection, self.rows, block, dimension)


class VectorIndex:
    """Keeps one VectorView in step with the rows; call under the store's lock."""

    def __init__(self, exact: bool | None) -> None:
        self._exact = exact
        self._view: VectorView | None = None

    def view(self, connection: sqlite3.Connection, rows: RowView) -> VectorView:
        """Return the view of these rows."""
        if self._view is None or self._view.rows is not rows:
            self._view = self._advanced(connection, rows, self._view)
        return self._view

    def _advanced(self, connection: sqlite3.Connection, rows: RowView, old: VectorView | None) -> VectorView:
        facts = rows.facts
        few = facts.documents <= EXACT_UP_TO
        if facts.version == 1 or (few and self._exact is not False):
            held = _unchanged(rows, old, None if old is None else old.vectors)
            for block in rows.blocks:
                if block not in held:
                    held[block] = read_vectors(connection, rows, block, facts.dimension)
            return VectorView(rows, None, held)
        if self._exact or not fits(facts.dimension):
            return VectorView(rows, None, None)
        held = _unchanged(rows, old, None if old is None else old.codes)
        missing = [block for block in rows.blocks if block not in held]
        held.update(read_codes(connection, missing, facts.dimension))
        return VectorView(rows, held, None)


class _Read:
    """Vectors read from the file so far, with their cosines to a query."""

    def __init__(self, connection: sqlite3.Connection, query: Array) -> None:
        self._connection = connection
        self._query = query
        self._rows = np.zeros(0, dtype=np.int64)
        self._scores = np.zeros(0, dtype=np.float32)
        self._matrices: list[Array] = []

    def read(self, rows: Array) -> _Read:
        """Read these rows, too."""
        rows = np.sort(rows)
        matrix = vector_matrix(self._connection, rows.tolist(), len(self._query))
        self._matrices.append(matrix)
        self._rows = np.concatenate([self._rows, rows])
        self._scores = np.concatenate([self._scores, matrix @ self._query])
        return self

    def rows_of_best(self, k: int) -> set[int]:
        """Return the rows of the best k so far, with those that may tie."""
        return set(self._rows[_top(self._scores, k)].tolist())

    def best(self, k: int) -> list[tuple[int, float]]:
        """Return (row, cosine) of the best k, and of all that may tie with the last of them."""
        places = _top(self._scores, k)
        size = max(1, len(self._matrices[0]))  # only the last batch may be shorter
        held = [self._matrices[at // size][at % size] for at in places.tolist()]
        vectors = np.stack(held) if held else np.zeros((0, len(self._query)))
        return list(zip(self._rows[places].tolist(), _cosines(vectors, self._query), strict=True))


def vector_from(stored: bytes) -> Array:
    """Return a stored vector as an array."""
    return np.frombuffer(stored, dtype="<f4")


def read_vectors(connection: sqlite3.Connection, rows: RowView, block: int, dimension: int) -> Array:
    """Return the vectors of a block as one matrix, zeros where there is no document."""
    matrix = np.zeros((ROWS, dimension), dtype=np.float32)
    statement = "SELECT row, vector, checksum FROM vectors WHERE row BETWEEN ? AND ?"
    missing = sum(length != ABSENT for length in rows.lengths_by_block[block])
    for row, vector, check in connection.execute(statement, (block * ROWS, block * ROWS + ROWS - 1)):
        whole = isinstance(vector, bytes) and len(vector) == 4 * dimension
        if not whole or (check is not None and checksum(row, vector) != check):
            raise Damage("vectors", row)
        matrix[row % ROWS] = np.frombuffer(vector, dtype="<f4")
        missing -= 1
    if missing:
        raise Damage("vectors", f"{block * ROWS} and following")
    return matrix


def _unchanged(rows: RowView, old: VectorView | None, held: dict[int, Array] | None) -> dict[int, Array]:
    """Return what is held of blocks that are still the same."""
    if old is None or held is None:
        return {}
    before, now = old.rows.lengths_by_block, rows.lengths_by_block
    return {block: one for block, one in held.items() if block in now and before[block] is now[block]}


def _top(scores: Array, k: int) -> Array:
    """Return the places of the best k and of all that may tie with the last of them."""
    if len(scores) > k > 0:
        last = np.partition(scores, len(scores) - k)[len(scores) - k]
        return np.flatnonzero(scores >= last - _MARGIN)
    return np.flatnonzero(scores > -np.inf) if k else np.zeros(0, dtype=np.int64)


def _cosines(vectors: Array, query: Array) -> list[float]:
    found: list[float] = (vectors * query.astype("float64")).sum(axis=1).tolist()
    return found
