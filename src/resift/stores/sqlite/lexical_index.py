"""Keyword search: posting lists in sorted segments, scored by BM25.

Each write adds one segment, a sorted run of posting lists. Row numbers only grow, so newer segments have
higher row numbers, and merging two lists means concatenating them. Small segments are merged as they
accumulate. Deleted rows stay in the lists until a merge drops them, and readers skip them.

A posting list is `count, (gap, count)*` in variable-length integers. Lists are stored in blocks of 2 kB.
Each block names the first term of the next one, so a block also proves which terms are not in its segment.
"""

from __future__ import annotations

import heapq
import sqlite3
import threading
from array import array
from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter, sub
from struct import pack, unpack_from
from types import ModuleType
from typing import NamedTuple

from resift._internal.arrays import Array
from resift.stores.sqlite import database
from resift.stores.sqlite.database import Connection, IndexCorruptedError, Segment, checksum
from resift.stores.sqlite.rows import ABSENT, BLOCK_ROWS, RowList, read_lengths
from resift.text.analysis import BM25, idf

_CACHE_BYTES = 64 * 1024 * 1024
_MERGE_FACTOR = 8
_MIN_BYTES_FOR_NUMPY = 256
_MIN_DOCUMENTS_FOR_NUMPY = 16
_BLOCK_BYTES = 1800  # with 8 kB pages, SQLite keeps up to 2 kB of a row out of overflow pages

Word = tuple[str, ...]  # index terms that count as one query word: its stems in the languages of the index


class Occurrences(NamedTuple):
    """The rows that contain a term, in ascending order, and its counts: arrays, or lists if numpy is not installed."""

    rows: Array | list[int]
    counts: Array | list[int]

    @classmethod
    def from_lists(cls, rows: list[int], counts: list[int]) -> Occurrences:
        """Return the occurrences as arrays if numpy is installed."""
        np = _numpy()
        return cls(rows, counts) if np is None else cls(np.array(rows, np.int64), np.array(counts, np.int64))


class PostingList(NamedTuple):
    """The encoded rows of one term in one segment."""

    term: str
    first_row: int
    last_row: int
    data: bytes

    def decode(self) -> Occurrences:
        """Return the rows and counts."""
        np = _numpy()
        if np is None or len(self.data) < _MIN_BYTES_FOR_NUMPY:
            values, value, shift = list[int](), 0, 0
            for byte in self.data:
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    values.append(value)
                    value = shift = 0
            row, rows = self.first_row, [self.first_row]
            for gap in values[1::2]:
                row += gap
                rows.append(row)
            return Occurrences.from_lists(rows, values[0::2])
        data = np.frombuffer(self.data, dtype=np.uint8)
        ends = np.flatnonzero(data < 0x80)
        starts = np.concatenate(([0], ends[:-1] + 1))
        values = (data[starts] & 0x7F).astype(np.int64)
        for i in range(1, int((ends - starts).max()) + 1):
            longer = np.flatnonzero(ends - starts >= i)
            values[longer] |= (data[starts[longer] + i] & 0x7F).astype(np.int64) << (7 * i)
        rows = np.concatenate(([self.first_row], values[1::2])).cumsum()
        return Occurrences(rows, values[0::2])


# Writing


def build_lists(documents: Sequence[tuple[int, Sequence[str]]]) -> Iterator[PostingList]:
    """Yield the posting lists of (row, terms) pairs in term order. Rows must be in ascending order."""
    np = _numpy()
    if np is None or len(documents) < _MIN_DOCUMENTS_FOR_NUMPY:
        pairs: defaultdict[str, list[int]] = defaultdict(list)
        for row, terms in documents:
            for term, count in Counter(terms).items():
                pairs[term] += (row, count)
        for term in sorted(pairs):
            yield encode_list(term, pairs[term])
        return
    texts = [terms for _, terms in documents]
    vocabulary = sorted(set(chain.from_iterable(texts)))
    numbers = dict(zip(vocabulary, range(len(vocabulary)), strict=True))
    lengths = list(map(len, texts))
    terms = np.fromiter(map(numbers.__getitem__, chain.from_iterable(texts)), np.int64, sum(lengths))
    # Pack (term, row) into one integer. Sorting these integers yields the posting lists in term order.
    keys, counts = np.unique(terms << 32 | np.repeat([row for row, _ in documents], lengths), return_counts=True)
    terms, rows = keys >> 32, keys & 0xFFFFFFFF
    edges = np.flatnonzero(np.diff(terms, prepend=-1, append=-1))
    starts, ends = edges[:-1], edges[1:]
    values = np.stack([np.diff(rows, prepend=0), counts], axis=1).ravel()
    values[2 * starts] = 0  # the first row of a list has no gap; its byte is skipped below
    sizes = 1 + sum((values >> 7 * i > 0).astype(np.int64) for i in range(1, 5))
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    data = np.zeros(offsets[-1], dtype=np.uint8)
    for i in range(int(sizes.max(initial=0))):
        longer = np.flatnonzero(sizes > i)
        more = np.where(sizes[longer] > i + 1, 0x80, 0)
        data[offsets[longer] + i] = values[longer] >> 7 * i & 0x7F | more
    encoded = data.tobytes()
    columns = (rows[starts], rows[ends - 1], offsets[2 * starts] + 1, offsets[2 * ends])
    for term, first, last, start, end in zip(vocabulary, *(c.tolist() for c in columns), strict=True):
        yield PostingList(term, first, last, encoded[start:end])


def encode_list(term: str, pairs: Sequence[int]) -> PostingList:
    """Return the posting list of `row, count, row, count, …` in row order."""
    values = list(pairs[1:])
    rows = pairs[::2]
    if len(rows) > 1:
        values[1::2] = map(sub, rows[1:], rows)
    data = bytes(values) if max(values) < 0x80 else _encode_integers(values)  # most values fit into one byte
    return PostingList(term, rows[0], rows[-1], data)


def write_segment(connection: sqlite3.Connection, number: int, lists: Iterable[PostingList]) -> None:
    """Store posting lists, which must be in term order, as one segment.

    A block contains the terms, then the first row, last row and size of each list, then the lists.
    """
    terms: list[str] = []
    numbers: list[int] = []
    parts: list[bytes] = []

    def make_row(first_term: str, next_term: str) -> tuple[int, str, bytes, int]:
        header = "\n".join([next_term, *terms]).encode()
        sizes = pack(f"<{len(numbers)}I", *numbers)
        block = b"".join((len(header).to_bytes(4, "little"), header, sizes, *parts))
        return number, first_term, block, checksum(number, first_term.encode(), block)

    def make_rows() -> Iterator[tuple[int, str, bytes, int]]:
        first_term, size = "", 0  # the first block also covers any terms before its first
        for term, first_row, last_row, data in lists:
            if size >= _BLOCK_BYTES:
                yield make_row(first_term, term)
                first_term, size = term, 0
                terms.clear()
                numbers.clear()
                parts.clear()
            terms.append(term)
            numbers.extend((first_row, last_row, len(data)))
            parts.append(data)
            size += len(term) + len(data) + 13
        yield make_row(first_term, "")

    connection.executemany("INSERT INTO postings VALUES (?, ?, ?, ?)", make_rows())


class SegmentWriter:
    """Adds segments to the keyword index and merges small ones; `documents` is the size of the collection."""

    def __init__(self, connection: sqlite3.Connection, segments: tuple[Segment, ...], documents: int) -> None:
        self.segments = segments
        self._connection = connection
        self._documents = documents

    def save(self) -> None:
        """Record the segments in the metadata of the file, oldest first."""
        text = " ".join(f"{segment.number}:{segment.documents}" for segment in self.segments)
        database.write_metadata(self._connection, {"segments": text})

    def add(self, documents: Sequence[tuple[int, Sequence[str]]]) -> None:
        """Write (row, terms) pairs as a new segment, and merge small segments."""
        if documents:
            number = 1 + max((segment.number for segment in self.segments), default=0)
            write_segment(self._connection, number, build_lists(documents))
            self.segments = (*self.segments, Segment(number, len(documents)))
        limit = _MERGE_FACTOR
        while self.segments and limit <= _MERGE_FACTOR * max(segment.documents for segment in self.segments):
            # Merge the newest segments below the limit once enough of them are in the tier just below it.
            older = [i for i, segment in enumerate(self.segments) if segment.documents >= limit]
            newest = self.segments[older[-1] + 1 if older else 0 :]
            if sum(segment.documents * _MERGE_FACTOR >= limit for segment in newest) >= _MERGE_FACTOR:
                self.merge(len(newest))
            limit *= _MERGE_FACTOR

    def merge(self, newest: int) -> None:
        """Merge the newest segments; drop deleted rows if all are merged, or if a quarter of all are deleted."""
        older, merged = self.segments[:-newest], self.segments[-newest:]
        number = self.segments[-1].number + 1
        indexed = sum(segment.documents for segment in self.segments)
        purge = indexed * 3 > self._documents * 4 or (not older and indexed > self._documents)
        remaining: set[int] = set()
        blocks = dict(read_lengths(self._connection)) if purge else {}

        def is_present(row: int) -> bool:
            lengths = blocks.get(row // BLOCK_ROWS)
            return lengths is not None and lengths[row % BLOCK_ROWS] != ABSENT

        def combine() -> Iterator[PostingList]:
            cursors = [iterate_segment(self._connection, segment.number) for segment in merged]
            # Tuples compare by term and then by first row, so the lists of a term stay in segment order.
            for _, group in groupby(heapq.merge(*cursors), key=itemgetter(0)):
                combined = _concatenate(list(group))
                if purge:
                    pairs = [(int(row), int(n)) for row, n in zip(*combined.decode(), strict=True) if is_present(row)]
                    remaining.update(row for row, _ in pairs)
                    if pairs:
                        yield encode_list(combined.term, [value for pair in pairs for value in pair])
                else:
                    yield combined

        write_segment(self._connection, number, combine())
        self._connection.executemany("DELETE FROM postings WHERE segment = ?", [(item.number,) for item in merged])
        size = len(remaining) if purge else sum(segment.documents for segment in merged)
        self.segments = (*older, Segment(number, size)) if size else older


def _concatenate(lists: Sequence[PostingList]) -> PostingList:
    """Join the lists of one term in successive segments."""
    if len(lists) == 1:
        return lists[0]
    term, first_row, last_row, data = lists[0]
    parts = [data]
    for _, row, next_last, data in lists[1:]:
        gap = row - last_row
        parts += (bytes((gap,)) if gap < 0x80 else _encode_integers([gap]), data)
        last_row = next_last
    return PostingList(term, first_row, last_row, b"".join(parts))


def iterate_segment(connection: sqlite3.Connection, number: int) -> Iterator[PostingList]:
    """Yield the lists of a segment in term order."""
    expected = ""
    statement = "SELECT first_term, lists, checksum FROM postings WHERE segment = ? ORDER BY first_term"
    for first_term, block, stored in connection.execute(statement, (number,)):
        if first_term != expected or checksum(number, first_term.encode(), block) != stored:
            raise IndexCorruptedError("postings", f"segment {number}")
        expected, terms, numbers, start = _open_block(block)
        for term, first_row, last_row, size in zip(terms, numbers[::3], numbers[1::3], numbers[2::3], strict=True):
            yield PostingList(term, first_row, last_row, block[start : start + size])
            start += size
    if expected:
        raise IndexCorruptedError("postings", f"segment {number}")


def _open_block(block: bytes) -> tuple[str, list[str], tuple[int, ...], int]:
    """Return the next block's first term, this block's terms, three numbers per list, and where the lists start."""
    start = 4 + int.from_bytes(block[:4], "little")
    next_term, *terms = block[4:start].decode().split("\n")
    numbers = unpack_from(f"<{3 * len(terms)}I", block, start)
    return next_term, terms, numbers, start + 12 * len(terms)


def _encode_integers(values: Iterable[int]) -> bytes:
    data = bytearray()
    for value in values:
        rest = value
        while rest >= 0x80:
            data.append(rest & 0x7F | 0x80)
            rest >>= 7
        data.append(rest)
    return bytes(data)


# Reading


def read_occurrences(connection: Connection, segments: Sequence[Segment], term: str) -> Occurrences:
    """Return the rows that contain a term, including deleted rows, and its count in each."""
    if connection.version == database.LEGACY_VERSION:
        return _read_legacy_occurrences(connection, term)
    numbers = ",".join(f"({segment.number})" for segment in segments) or "(0)"
    # Read one block per segment: the one that would contain the term.
    statement = (
        f"WITH segments(number) AS (VALUES {numbers}) "  # noqa: S608 - our own numbers
        "SELECT segment, first_term, lists, checksum FROM segments JOIN postings ON segment = number "
        "AND first_term = (SELECT max(first_term) FROM postings WHERE segment = number AND first_term <= ?) "
        "ORDER BY segment"
    )
    lists, seen = [], 0
    for segment, first_term, block, stored in connection.execute(statement, (term,)).fetchall():
        if checksum(segment, str(first_term).encode(), block) != stored:
            raise IndexCorruptedError("postings", f"segment {segment}")
        next_term, terms, sizes, start = _open_block(block)
        if "" < next_term <= term:  # the next block should have been selected, but it is hidden
            raise IndexCorruptedError("postings", f"segment {segment}")
        seen += 1
        i = bisect_left(terms, term)
        if i < len(terms) and terms[i] == term:
            first_row, last_row, size = sizes[3 * i : 3 * i + 3]
            start += sum(sizes[2 : 3 * i : 3])
            lists.append(PostingList(term, first_row, last_row, block[start : start + size]))
    if seen != len(segments):
        raise IndexCorruptedError("postings", "a segment")
    if lists:
        return (lists[0] if len(lists) == 1 else _concatenate(lists)).decode()
    return Occurrences.from_lists([], [])


def _read_legacy_occurrences(connection: sqlite3.Connection, term: str) -> Occurrences:
    """Read a term from the FTS5 table of a legacy file."""
    # Read all rows as one string. Reading row by row takes four times as long and holds the GIL.
    statement = "SELECT group_concat(doc) FROM temp.instances WHERE term = ?"
    (rows,) = connection.execute(statement, (term,)).fetchone()
    counts = Counter(map(int, rows.split(","))) if rows else Counter[int]()
    return Occurrences.from_lists(sorted(counts), [counts[row] for row in sorted(counts)])


def iterate_legacy_terms(connection: sqlite3.Connection) -> Iterator[tuple[str, Iterable[tuple[int, int]]]]:
    """Yield (term, (row, count) pairs) from the FTS5 table of a legacy file, in term order."""
    statement = "SELECT term, group_concat(doc) FROM temp.instances GROUP BY term ORDER BY term"
    for term, rows in connection.execute(statement):
        yield term, Counter(map(int, rows.split(","))).items()


class WeightedPostings(NamedTuple):
    """The slots of the documents that contain a word, and its BM25 weight in each."""

    slots: Array | array[int]
    weights: Array | array[float]


class LexicalView:
    """The keyword index of one generation. Caches the posting lists it has read."""

    def __init__(self, rows: RowList, model: BM25) -> None:
        self.rows = rows
        self._model = model
        self._np = _numpy()
        self._postings: OrderedDict[Word, WeightedPostings] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def search(
        self, connection: Connection, words: Sequence[Word], k: int, allowed: Sequence[int] | None
    ) -> list[tuple[int, float]]:
        """Return (row, score) of the best k rows, and of all rows that tie with the last one."""
        if not self.rows.blocks or not words:
            return []
        postings = [self._load(connection, word) for word in words]
        np = self._np
        if np is None:
            return self._search_without_numpy(postings, k, allowed)
        scores = np.zeros(len(self.rows.lengths))
        for item in postings:
            # Each document occurs once in the postings of a word, so plain indexed addition is correct.
            scores[item.slots] += item.weights
        if allowed is not None:
            scores *= self.rows.mask(allowed)
        slots = np.flatnonzero(scores)
        if len(slots) > k:
            last = np.partition(scores[slots], len(slots) - k)[len(slots) - k]
            slots = slots[scores[slots] >= last]
        return list(zip(self.rows.rows_at(slots).tolist(), scores[slots].tolist(), strict=True))

    def _search_without_numpy(
        self, postings: Sequence[WeightedPostings], k: int, allowed: Sequence[int] | None
    ) -> list[tuple[int, float]]:
        scores: defaultdict[int, float] = defaultdict(float)
        for item in postings:
            for slot, weight in zip(item.slots, item.weights, strict=True):
                scores[slot] += weight
        passing = None if allowed is None else set(allowed)
        blocks = self.rows.blocks
        rows = ((blocks[slot // BLOCK_ROWS] * BLOCK_ROWS + slot % BLOCK_ROWS, score) for slot, score in scores.items())
        best = [(row, score) for row, score in rows if passing is None or row in passing]
        best.sort(key=itemgetter(1), reverse=True)
        return [match for match in best if match[1] >= best[min(k, len(best)) - 1][1]]

    def _load(self, connection: Connection, word: Word) -> WeightedPostings:
        """Return the postings of a word, from the cache if possible."""
        with self._lock:
            cached = self._postings.get(word)
            if cached is not None:
                self._postings.move_to_end(word)
                return cached
        # Read outside the lock. Two threads may read the same word, but no thread waits for another's disk access.
        segments = self.rows.file.segments
        parts = [read_occurrences(connection, segments, term) for term in word]
        postings = self._weigh(parts[0] if len(parts) == 1 else _add_up(parts))
        with self._lock:
            if word not in self._postings:
                self._postings[word] = postings
                self._bytes += 12 * len(postings.slots)
            # The newest entry is in use, so it stays in the cache whatever its size.
            while self._bytes > _CACHE_BYTES and len(self._postings) > 1:
                _, dropped = self._postings.popitem(last=False)
                self._bytes -= 12 * len(dropped.slots)
        return postings

    def _weigh(self, occurrences: Occurrences) -> WeightedPostings:
        """Return the BM25 weights of a word, without deleted rows."""
        np, rows, model = self._np, self.rows, self._model
        mean_length = rows.file.mean_length
        if np is None:
            pairs = [(rows.find_slot(row), count) for row, count in zip(*occurrences, strict=True)]
            present = [(slot, count) for slot, count in pairs if slot >= 0]
            rarity = idf(rows.file.documents, len(present))
            weights = (
                model.weight(count, rows.lengths[slot], idf=rarity, mean_length=mean_length) for slot, count in present
            )
            return WeightedPostings(array("i", (slot for slot, _ in present)), array("d", weights))
        slots, mask = rows.find_slots(occurrences.rows)
        rarity = idf(rows.file.documents, len(slots))
        counts: Array = np.asarray(occurrences.counts)[mask]
        values = model.weight(counts, rows.lengths_array()[slots], idf=rarity, mean_length=mean_length)
        return WeightedPostings(slots.astype(np.int32), values)


def _add_up(parts: Sequence[Occurrences]) -> Occurrences:
    """Combine the occurrences of several terms as if they were one term."""
    np = _numpy()
    if np is None:
        counts: Counter[int] = Counter()
        for part in parts:
            counts.update(dict(zip(part.rows, part.counts, strict=True)))
        return Occurrences(sorted(counts), [counts[row] for row in sorted(counts)])
    rows, inverse = np.unique(np.concatenate([part.rows for part in parts]), return_inverse=True)
    totals = np.bincount(inverse, weights=np.concatenate([part.counts for part in parts]), minlength=len(rows))
    return Occurrences(rows, totals.astype(np.int64))


def _numpy() -> ModuleType | None:
    """Return numpy if it is installed; keyword search also works without it."""
    try:
        import numpy
    except ModuleNotFoundError:
        return None
    return numpy
