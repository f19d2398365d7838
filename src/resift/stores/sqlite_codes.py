"""Bit codes: which vectors may be near a query, from one bit per dimension (asymmetric distance).

A document is the signs of its vector, 48 bytes at 384 dimensions. The query keeps its sign and four bits
of size per dimension. The distance is the sum of sizes where the signs differ: integers, so that it is the
same on every processor. On real vectors this needs two to four times fewer candidates than the Hamming
distance.
"""

from __future__ import annotations

from ctypes import c_int32, c_int64, c_void_p
from threading import Thread
from typing import Any, NamedTuple

from resift._internal.arrays import Array, np
from resift.native.library import native_kernel
from resift.stores.sqlite_blocks import ROWS, codes_of, words_per_code

MOST_DIMENSIONS = 4096
"""Distances of longer vectors would not fit into 16 bits."""

_BITS = 4
_LARGEST = (1 << _BITS) - 1
_CLIP = 2.5  # in standard deviations: few values are larger, and they would cost all others their resolution
_MASKED = 65_535
_BLOCKS_FOR_TWO = 256  # from here on half of a scan takes longer than starting a thread for it


class QuantizedQuery(NamedTuple):
    """A query in bit slices: row 0 holds its signs, row 1 + b bit b of its sizes."""

    slices: Array

    @property
    def farthest(self) -> int:
        """The largest distance there is."""
        words: int = self.slices.shape[1]
        return _LARGEST * 64 * words


class CodeTable:
    """The codes of some blocks in memory, and where each block's begin."""

    def __init__(self, blocks: list[Array]) -> None:
        self.blocks = blocks
        self.addresses = np.array([block.ctypes.data for block in blocks], dtype=np.uint64)

    def nearest(self, query: QuantizedQuery, count: int, mask: Array) -> Array:
        """Return the places of the `count` least distances and of all that tie, nearest first."""
        distances, histogram = self._distances(query, mask)
        reached = np.cumsum(histogram)
        limit = int(np.searchsorted(reached, min(count, int(reached[-1]))))
        places = np.flatnonzero(distances <= limit)
        return places[np.argsort(distances[places], kind="stable")]

    def _distances(self, query: QuantizedQuery, mask: Array) -> tuple[Array, Array]:
        distances = np.empty(len(self.blocks) * ROWS, dtype=np.uint16)
        compiled = _compiled()
        if compiled is None:
            for at, block in enumerate(self.blocks):
                distances[at * ROWS : (at + 1) * ROWS] = _plain_distances(block, query)
            distances[mask == 0] = _MASKED
            return distances, np.bincount(distances[mask != 0], minlength=query.farthest + 1)
        histograms = np.zeros((2, query.farthest + 1), dtype=np.int64)

        def scan(start: int, end: int, histogram: Array) -> None:
            here = slice(start * ROWS, end * ROWS)
            compiled(
                self.addresses[start:end].ctypes.data,
                end - start,
                query.slices.shape[1],
                query.slices.ctypes.data,
                mask[here].ctypes.data,
                distances[here].ctypes.data,
                histogram.ctypes.data,
            )

        half = len(self.blocks) // 2 if len(self.blocks) >= _BLOCKS_FOR_TWO else 0
        other = Thread(target=scan, args=(0, half, histograms[0]))
        if half:
            other.start()
        scan(half, len(self.blocks), histograms[1])
        if half:
            other.join()
        return distances, histograms.sum(axis=0)


def quantized_query(query: Array) -> QuantizedQuery:
    """Return the bit slices of a query's vector."""
    sizes = np.abs(query.astype(np.float64))
    scale = _CLIP * np.sqrt(np.mean(sizes * sizes)) or 1.0
    levels = np.minimum(np.rint(sizes * (_LARGEST / scale)), _LARGEST).astype(np.uint8)
    planes = [(levels >> bit & 1).astype(np.float32) for bit in range(_BITS)]
    return QuantizedQuery(np.ascontiguousarray(codes_of(np.stack([query, *planes]))))


def fits(dimension: int) -> bool:
    """Say whether vectors of this many dimensions can be searched by codes."""
    return 0 < words_per_code(dimension) * 64 <= MOST_DIMENSIONS


def _plain_distances(block: Array, query: QuantizedQuery) -> Array:
    # Without compiled code: the same numbers, slower.
    total = np.zeros(ROWS, dtype=np.uint16)
    signs, *planes = query.slices
    for word in range(len(block)):
        differing = block[word] ^ signs[word]
        for bit, plane in enumerate(planes):
            if plane[word]:
                total += _popcount(differing & plane[word]).astype(np.uint16) << np.uint16(bit)
    return total


def _popcount(words: Array) -> Array:
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(words)
    table = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)
    counted: Array = table[words.view(np.uint8)].reshape(len(words), 8).sum(axis=1)
    return counted


def _compiled() -> Any:
    """Return the C function for this processor, or None where there is no compiled code."""
    kernel = native_kernel()
    if kernel.name is None:
        return None
    function = kernel.function("code_distances")
    function.argtypes = (c_void_p, c_int64, c_int32, c_void_p, c_void_p, c_void_p, c_void_p)
    function.restype = None
    return function
