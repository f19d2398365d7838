"""Vector search: an exact scan of small collections, and candidate selection by bit codes in large ones.

The bit code of a document consists of the signs of its vector: 48 bytes at 384 dimensions. A query keeps its
signs and four bits of magnitude per dimension. The distance is the sum of the magnitudes where the signs
differ. It is an integer, so it is the same on every processor. On real vectors it needs two to four times
fewer candidates than the Hamming distance. The candidates are then scored with their full vectors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int32, c_int64, c_void_p
from functools import partial
from threading import Thread

from resift._internal.arrays import Array, np
from resift.native.library import native_kernel
from resift.stores.sqlite.database import Connection, IndexCorruptedError, checksum
from resift.stores.sqlite.rows import ABSENT, BLOCK_ROWS, RowList, RowListCache, read_vector_matrix, read_vectors

EXACT_UP_TO = 100_000  # maximum number of documents for an exact scan; measurements are in docs/guides/run/scale.md

MAX_DIMENSION = 4096  # distances between longer vectors do not fit into 16 bits

_SCAN_ROWS = 512
# With this few rows, BLAS stays in the calling thread. The scan is memory-bound, so more threads do not help,
# and on a busy machine waiting for a thread takes ten times as long as the scan.
_MARGIN = 1e-5  # error bound of float32 sums of a few hundred products
_BATCH = 500
_MAX_BATCHES = 32

_BITS = 4
_MAX_LEVEL = (1 << _BITS) - 1
_CLIP = 2.5  # standard deviations; larger values are rare, and including them would coarsen all levels
_MASKED = 65_535
_BLOCKS_FOR_TWO_THREADS = 256  # from this size up, half a scan takes longer than starting a thread


class VectorView:
    """The vectors of one generation. Memory holds all of them, or their codes, or neither."""

    def __init__(self, rows: RowList, codes: dict[int, Array] | None, vectors: dict[int, Array] | None) -> None:
        self.rows, self.codes, self.vectors = rows, codes, vectors
        self._table = None if codes is None else CodeTable([codes[block] for block in rows.blocks])

    def search(
        self, connection: sqlite3.Connection, query: Array, k: int, allowed: Sequence[int] | None
    ) -> tuple[list[tuple[int, float]], bool]:
        """Return (row, cosine) of the best k and possible ties, and whether the search was approximate.

        Scores are summed again in float64, so they depend neither on the position of a row nor on the threads.
        """
        if not self.rows.blocks:
            return [], False
        mask = self.rows.mask(allowed)
        if self._table is None:
            return self._scan(connection, query, k, mask), False
        # Codes give only an approximate order, so several times k vectors are read.
        batch = max(_BATCH, 5 * k)
        # Documents that pass a filter may be anywhere in the order of the codes, so up to four batches are read.
        if int(mask.sum()) <= (batch if allowed is None else 4 * batch):
            candidates = _Candidates(connection, query, self.rows.rows_at(mask.nonzero()[0]))
            return candidates.best(k), False
        rows = self.rows.rows_at(self._table.nearest(quantize_query(query), batch * _MAX_BATCHES, mask))
        candidates = _Candidates(connection, query, rows[:batch])
        before: set[int] = set()
        for start in range(batch, len(rows), batch):
            best = candidates.best_rows(k)
            # The last batch did not change the result, and the codes of all remaining rows are farther away.
            if best == before:
                break
            before = best
            candidates.read(rows[start : start + batch])
        return candidates.best(k), True

    def _scan(self, connection: sqlite3.Connection, query: Array, k: int, mask: Array) -> list[tuple[int, float]]:
        scores = np.empty(len(mask), dtype=np.float32)
        start = 0
        for block in self.rows.blocks:
            if self.vectors is None:
                matrix = read_block_vectors(connection, self.rows, block, len(query))
            else:
                matrix = self.vectors[block]
            for offset in range(0, BLOCK_ROWS, _SCAN_ROWS):
                out = scores[start + offset : start + offset + _SCAN_ROWS]
                np.dot(matrix[offset : offset + _SCAN_ROWS], query, out=out)
            start += BLOCK_ROWS
        # Filter after the scan, because gathering the rows first would copy most of the matrix.
        scores[mask == 0] = -np.inf
        slots = _select_top(scores, min(k, int(mask.sum())))
        rows = self.rows.rows_at(slots)
        if self.vectors is None:
            return _Candidates(connection, query, rows).best(k)
        vectors = np.empty((len(slots), len(query)), dtype=np.float32)
        # Slots are in ascending order, so each block is one slice of them.
        positions = slots // BLOCK_ROWS
        edges = np.flatnonzero(np.diff(positions, prepend=-1, append=-1))
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            block = self.rows.blocks[int(positions[first])]
            np.take(self.vectors[block], slots[first:last] % BLOCK_ROWS, axis=0, out=vectors[first:last])
        cosines = (vectors * query.astype("float64")).sum(axis=1).tolist()
        return list(zip(rows.tolist(), cosines, strict=True))


def load_vectors(
    connection: sqlite3.Connection, rows: RowList, *, exact: bool | None, old: VectorView | None = None
) -> VectorView:
    """Return the view of these rows; blocks that have not changed are taken from the old view."""
    dimension = rows.file.dimension
    if rows.file.documents <= EXACT_UP_TO and exact is not False:
        read = partial(read_block_vectors, connection, rows, dimension=dimension)
        return VectorView(rows, None, _read_blocks(rows, old, None if old is None else old.vectors, read))
    if exact or not 0 < words_per_code(dimension) * 64 <= MAX_DIMENSION:
        return VectorView(rows, None, None)
    read = partial(read_codes, connection, dimension=dimension)
    return VectorView(rows, _read_blocks(rows, old, None if old is None else old.codes, read), None)


def measure_recall(connection: Connection, queries: int, k: int) -> float:
    """Return the share of the exact top k that bit codes find, with the vectors of some documents as queries."""
    rows = RowListCache().load(connection)
    slots = rows.mask(None).nonzero()[0]
    if not len(slots) or not rows.file.dimension:
        return 1.0
    views = [load_vectors(connection, rows, exact=exact) for exact in (True, False)]
    sample = rows.rows_at(slots[:: max(1, len(slots) // queries)][:queries]).tolist()
    shares = []
    for vector in read_vectors(connection, sample).values():
        top: list[set[int]] = []
        for view in views:
            matches = view.search(connection, np.frombuffer(vector, dtype="<f4"), k, None)[0]
            best = sorted(matches, key=lambda match: (-match[1], match[0]))[:k]
            top.append({row for row, _ in best})
        shares.append(len(top[0] & top[1]) / len(top[0]))
    return sum(shares) / len(shares)


class _Candidates:
    """Vectors read from the file so far, with their approximate cosines to a query."""

    def __init__(self, connection: sqlite3.Connection, query: Array, rows: Array) -> None:
        self._connection = connection
        self._query = query
        self._rows = np.zeros(0, dtype=np.int64)
        self._scores = np.zeros(0, dtype=np.float32)
        self._matrix = np.zeros((0, len(query)), dtype=np.float32)
        self.read(rows)

    def read(self, rows: Array) -> None:
        """Read the vectors of more rows."""
        rows = np.sort(rows)
        matrix = read_vector_matrix(self._connection, rows.tolist(), len(self._query))
        self._matrix = np.concatenate([self._matrix, matrix])
        self._rows = np.concatenate([self._rows, rows])
        self._scores = np.concatenate([self._scores, matrix @ self._query])

    def best_rows(self, k: int) -> set[int]:
        """Return the best k rows so far, and possible ties."""
        return set(self._rows[_select_top(self._scores, k)].tolist())

    def best(self, k: int) -> list[tuple[int, float]]:
        """Return (row, cosine) of the best k, and of all rows that may tie with the last one."""
        top = _select_top(self._scores, k)
        cosines = (self._matrix[top] * self._query.astype("float64")).sum(axis=1).tolist()
        return list(zip(self._rows[top].tolist(), cosines, strict=True))


def read_block_vectors(connection: sqlite3.Connection, rows: RowList, block: int, dimension: int) -> Array:
    """Return the vectors of a block as one matrix, with zeros for absent rows."""
    matrix = np.zeros((BLOCK_ROWS, dimension), dtype=np.float32)
    statement = "SELECT row, vector, checksum FROM vectors WHERE row BETWEEN ? AND ?"
    missing = sum(length != ABSENT for length in rows.lengths_by_block[block])
    first = block * BLOCK_ROWS
    for row, vector, stored in connection.execute(statement, (first, first + BLOCK_ROWS - 1)):
        if checksum(row, vector) != stored or len(vector) != 4 * dimension:
            raise IndexCorruptedError("vectors", row)
        matrix[row % BLOCK_ROWS] = np.frombuffer(vector, dtype="<f4")
        missing -= 1
    if missing:
        raise IndexCorruptedError("vectors", f"{first} and following")
    return matrix


def _read_blocks(
    rows: RowList, old: VectorView | None, arrays: dict[int, Array] | None, read: Callable[[int], Array]
) -> dict[int, Array]:
    """Return the array of each block; only changed blocks are read."""
    before, now = {} if old is None else old.rows.lengths_by_block, rows.lengths_by_block
    kept = {block: array for block, array in (arrays or {}).items() if before[block] is now.get(block)}
    return {block: kept[block] if block in kept else read(block) for block in rows.blocks}


def _select_top(scores: Array, k: int) -> Array:
    """Return the positions of the best k, and of all that may tie with the last one."""
    if len(scores) > k > 0:
        last = np.partition(scores, len(scores) - k)[len(scores) - k]
        return np.flatnonzero(scores >= last - _MARGIN)
    return np.flatnonzero(scores > -np.inf) if k else np.zeros(0, dtype=np.int64)


# Bit codes


class CodeTable:
    """The codes of all blocks in memory."""

    def __init__(self, blocks: list[Array]) -> None:
        self.blocks = blocks
        self.addresses = np.array([block.ctypes.data for block in blocks], dtype=np.uint64)

    def nearest(self, query: Array, count: int, mask: Array) -> Array:
        """Return the slots of the `count` nearest codes and of all ties with the last one, nearest first."""
        distances, histogram = self._distances(query, mask)
        cumulative = np.cumsum(histogram)
        limit = int(np.searchsorted(cumulative, min(count, int(cumulative[-1]))))
        slots = np.flatnonzero(distances <= limit)
        return slots[np.argsort(distances[slots], kind="stable")]

    def _distances(self, query: Array, mask: Array) -> tuple[Array, Array]:
        """Return the distance of each slot, and a histogram of the distances."""
        words: int = query.shape[1]
        max_distance = _MAX_LEVEL * 64 * words
        distances = np.empty(len(self.blocks) * BLOCK_ROWS, dtype=np.uint16)
        compiled = _compiled_function()
        if compiled is None:
            for i, block in enumerate(self.blocks):
                distances[i * BLOCK_ROWS : (i + 1) * BLOCK_ROWS] = _distances_with_numpy(block, query)
            distances[mask == 0] = _MASKED
            return distances, np.bincount(distances[mask != 0], minlength=max_distance + 1)
        histograms = np.zeros((2, max_distance + 1), dtype=np.int64)

        def scan(start: int, end: int, histogram: Array) -> None:
            slots = slice(start * BLOCK_ROWS, end * BLOCK_ROWS)
            compiled(
                self.addresses[start:end].ctypes.data,
                end - start,
                words,
                query.ctypes.data,
                mask[slots].ctypes.data,
                distances[slots].ctypes.data,
                histogram.ctypes.data,
            )

        half = len(self.blocks) // 2 if len(self.blocks) >= _BLOCKS_FOR_TWO_THREADS else 0
        other = Thread(target=scan, args=(0, half, histograms[0]))
        if half:
            other.start()
        scan(half, len(self.blocks), histograms[1])
        if half:
            other.join()
        return distances, histograms.sum(axis=0)


def words_per_code(dimension: int) -> int:
    """Return the number of 64-bit words in the code of a vector."""
    return -(-dimension // 64)


def encode_vectors(vectors: Array) -> Array:
    """Return the sign bits of vectors, as one row of 64-bit words per vector."""
    wide = np.zeros((len(vectors), words_per_code(vectors.shape[1]) * 64), dtype=bool)
    wide[:, : vectors.shape[1]] = vectors > 0
    return np.packbits(wide, axis=1, bitorder="little").view("<u8")


def quantize_query(query: Array) -> Array:
    """Return the bit planes of a query vector: row 0 contains the signs, row 1 + b bit b of the magnitudes."""
    magnitudes = np.abs(query.astype(np.float64))
    scale = _CLIP * np.sqrt(np.mean(magnitudes * magnitudes)) or 1.0
    levels = np.minimum(np.rint(magnitudes * (_MAX_LEVEL / scale)), _MAX_LEVEL).astype(np.uint8)
    planes = [(levels >> bit & 1).astype(np.float32) for bit in range(_BITS)]
    return np.ascontiguousarray(encode_vectors(np.stack([query, *planes])))


def read_codes(connection: sqlite3.Connection, block: int, dimension: int) -> Array:
    """Return the codes of a block: a word-major array of 64-bit words, with one column per row."""
    stored = _select_codes(connection, block)
    size = words_per_code(dimension) * BLOCK_ROWS * 8
    if stored is None or checksum(block, stored[0]) != stored[1] or len(stored[0]) != size:
        raise IndexCorruptedError("code_blocks", block)
    return np.frombuffer(stored[0], dtype="<u8").reshape(-1, BLOCK_ROWS)


def write_codes(connection: sqlite3.Connection, block: int, vectors: Mapping[int, bytes]) -> None:
    """Set the codes of some rows of a block; `vectors` maps their offset in the block to their vector."""
    matrix = np.frombuffer(b"".join(vectors.values()), dtype="<f4").reshape(len(vectors), -1)
    dimension = matrix.shape[1]
    if _select_codes(connection, block) is None:
        codes = np.zeros((words_per_code(dimension), BLOCK_ROWS), dtype="<u8")
    else:
        codes = read_codes(connection, block, dimension).copy()
    # The layout is word-major, so that a scan reads memory in one direction.
    codes[:, list(vectors)] = encode_vectors(matrix).T
    packed = codes.tobytes()
    connection.execute("INSERT OR REPLACE INTO code_blocks VALUES (?, ?, ?)", (block, packed, checksum(block, packed)))


def _select_codes(connection: sqlite3.Connection, block: int) -> tuple[bytes, int] | None:
    statement = "SELECT codes, checksum FROM code_blocks WHERE block = ?"
    return connection.execute(statement, (block,)).fetchone()  # type: ignore[no-any-return]


def _distances_with_numpy(block: Array, query: Array) -> Array:
    """Return the same distances as the compiled function, more slowly."""
    bits_per_byte = np.array([byte.bit_count() for byte in range(256)], dtype=np.uint16)
    total = np.zeros(BLOCK_ROWS, dtype=np.uint16)
    signs, *planes = query
    for word in range(len(block)):
        differing = block[word] ^ signs[word]
        for bit, plane in enumerate(planes):
            if plane[word]:
                bits = bits_per_byte[(differing & plane[word]).view(np.uint8)].reshape(BLOCK_ROWS, 8)
                total += bits.sum(axis=1, dtype=np.uint16) << np.uint16(bit)
    return total


def _compiled_function() -> Callable[..., None] | None:
    """Return the C function for this processor, or None if there is no compiled kernel."""
    kernel = native_kernel()
    if kernel.name is None:
        return None
    function = kernel.function("code_distances")
    function.argtypes = (c_void_p, c_int64, c_int32, c_void_p, c_void_p, c_void_p, c_void_p)
    function.restype = None
    compiled: Callable[..., None] = function
    return compiled
