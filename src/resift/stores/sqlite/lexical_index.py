"""Keyword search: posting lists in sorted segments, scored by BM25.

Each write adds one segment, a sorted run of posting lists. Row numbers only grow, so a later segment has
later rows, and merging two lists is a concatenation. Small segments are merged as they accumulate. Deleted
rows stay in the lists until a merge drops them, and readers skip them.

A posting list is `count, (gap, count)*` in variable-length integers. Lists are stored in blocks of 2 kB.
Each block names the first term of the next one, so a block also proves which terms its segment lacks.

SQLite's own `bm25()` has fixed parameters and visits matches one by one. Here a term is scored in one sweep,
and k1 and b are those of published baselines.
"""

from __future__ import annotations

import heapq
import sqlite3
import sys
import threading
from array import array
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from types import ModuleType
from typing import Any, NamedTuple

from resift.stores.sqlite.rows import RowList
from resift.stores.sqlite.tables import (
    POSTINGS_SINCE,
    Connection,
    IndexCorruptedError,
    Segment,
    checksum,
)
from resift.text.bm25 import BM25, idf

_CACHE_BYTES = 64 * 1024 * 1024
_MERGE_FACTOR = 8
_MIN_BYTES_FOR_NUMPY = 256
_BLOCK_BYTES = 1800  # with 8 kB pages, SQLite keeps up to 2 kB of a row out of overflow pages

Word = tuple[str, ...]
"""Index terms that count as one word of a query: its stems in the languages of the index."""


class Occurrences(NamedTuple):
    """The rows of a term in ascending order and its count in each: numpy arrays, or lists without numpy."""

    rows: Any
    counts: Any


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
            values = _decode_integers(self.data)
            row, rows = self.first_row, [self.first_row]
            for gap in values[1::2]:
                row += gap
                rows.append(row)
            counts = values[0::2]
            if np is None:
                return Occurrences(rows, counts)
            return Occurrences(np.array(rows, dtype=np.int64), np.array(counts, dtype=np.int64))
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


class SegmentBuilder:
    """Collects the posting lists of one write. Rows must come in ascending order."""

    def __init__(self) -> None:
        self.documents = 0
        self._lists: dict[str, tuple[int, list[int], bytearray]] = {}

    def add(self, row: int, terms: Iterable[str]) -> None:
        """Add the terms of one document."""
        self.documents += 1
        lists = self._lists
        for term, count in Counter(terms).items():
            entry = lists.get(term)
            if entry is None:
                data = bytearray()
                lists[term] = row, [row], data
            else:
                _, last, data = entry
                gap = row - last[0]
                last[0] = row
                if gap < 0x80:  # most numbers are one byte; a call for each would double the time
                    data.append(gap)
                else:
                    _append_integer(data, gap)
            if count < 0x80:
                data.append(count)
            else:
                _append_integer(data, count)

    def build(self) -> Iterator[PostingList]:
        """Yield the lists in term order."""
        for term in sorted(self._lists):
            first, (last,), data = self._lists[term]
            yield PostingList(term, first, last, bytes(data))


def encode_list(term: str, occurrences: Mapping[int, int]) -> PostingList:
    """Return the posting list of row -> count, which must not be empty."""
    rows = sorted(occurrences)
    data = bytearray()
    for before, row in zip([0, *rows], rows, strict=False):
        if data:
            _append_integer(data, row - before)
        _append_integer(data, occurrences[row])
    return PostingList(term, rows[0], rows[-1], bytes(data))


def write_segment(connection: sqlite3.Connection, number: int, lists: Iterable[PostingList]) -> None:
    """Store posting lists, which come in term order, as one segment."""

    def make_blocks() -> Iterator[tuple[str, bytes]]:
        first_term, block, size = "", list[PostingList](), 0  # the first block covers all terms before it
        for item in lists:
            if size >= _BLOCK_BYTES:
                yield first_term, _pack_block(block, item.term)
                first_term, block, size = item.term, [], 0
            block.append(item)
            size += len(item.term) + len(item.data) + 13
        yield first_term, _pack_block(block, "")

    rows = (
        (number, first_term, block, checksum(number, first_term.encode(), block))
        for first_term, block in make_blocks()
    )
    connection.executemany("INSERT INTO postings VALUES (?, ?, ?, ?)", rows)


def add_segment(
    connection: sqlite3.Connection,
    segments: tuple[Segment, ...],
    builder: SegmentBuilder,
    documents: int,
    is_present: Callable[[int], bool],
) -> tuple[Segment, ...]:
    """Write the new lists, merge small segments, and return all segments of the file.

    `documents` is the number of documents in the file, and `is_present` tells whether a row still exists.
    """
    if builder.documents:
        number = 1 + max((segment.number for segment in segments), default=0)
        write_segment(connection, number, builder.build())
        segments = (*segments, Segment(number, builder.documents))
    limit = _MERGE_FACTOR
    while segments and limit <= _MERGE_FACTOR * max(segment.documents for segment in segments):
        # The newest segments below the limit. Enough of them in the tier just below it are worth a merge.
        older = [i for i, segment in enumerate(segments) if segment.documents >= limit]
        newest = segments[older[-1] + 1 if older else 0 :]
        if sum(segment.documents * _MERGE_FACTOR >= limit for segment in newest) >= _MERGE_FACTOR:
            segments = merge_segments(connection, segments, len(newest), documents, is_present)
        limit *= _MERGE_FACTOR
    return segments


def merge_segments(
    connection: sqlite3.Connection,
    segments: tuple[Segment, ...],
    newest: int,
    documents: int,
    is_present: Callable[[int], bool],
) -> tuple[Segment, ...]:
    """Merge the newest segments into one and return all segments.

    Deleted rows are dropped if all segments are merged, or if a quarter of all rows are deleted.
    """
    kept, merged = segments[:-newest], segments[-newest:]
    number = segments[-1].number + 1
    listed = sum(segment.documents for segment in segments)
    purge = listed * 3 > documents * 4 or (not kept and listed > documents)
    remaining: set[int] = set()

    def combine() -> Iterator[PostingList]:
        cursors = [iterate_segment(connection, segment.number) for segment in merged]
        # Stable: lists of one term stay in the order of their segments.
        in_order = heapq.merge(*cursors, key=lambda item: item.term)
        for _, group in groupby(in_order, key=lambda item: item.term):
            combined = _concatenate(list(group))
            if purge:
                rows, counts = combined.decode()
                pairs = zip(map(int, rows), map(int, counts), strict=True)
                present = {row: count for row, count in pairs if is_present(row)}
                remaining.update(present)
                if present:
                    yield encode_list(combined.term, present)
            else:
                yield combined

    write_segment(connection, number, combine())
    connection.executemany("DELETE FROM postings WHERE segment = ?", [(item.number,) for item in merged])
    size = len(remaining) if purge else sum(segment.documents for segment in merged)
    return (*kept, Segment(number, size)) if size else kept


def _concatenate(lists: Sequence[PostingList]) -> PostingList:
    first = lists[0]
    if len(lists) == 1:
        return first
    data = bytearray(first.data)
    for before, after in pairwise(lists):
        _append_integer(data, after.first_row - before.last_row)
        data += after.data
    return PostingList(first.term, first.first_row, lists[-1].last_row, bytes(data))


def iterate_segment(connection: sqlite3.Connection, number: int) -> Iterator[PostingList]:
    """Yield the lists of a segment in term order."""
    expected = ""
    statement = "SELECT first_term, lists, checksum FROM postings WHERE segment = ? ORDER BY first_term"
    for first_term, block, stored in connection.execute(statement, (number,)):
        if first_term != expected or checksum(number, first_term.encode(), block) != stored:
            raise IndexCorruptedError("postings", f"segment {number}")
        expected, terms, numbers, position = _open_block(block)
        for i, term in enumerate(terms):
            first_row, last_row, size = numbers[3 * i : 3 * i + 3]
            yield PostingList(term, first_row, last_row, block[position : position + size])
            position += size
    if expected:
        raise IndexCorruptedError("postings", f"segment {number}")


def _pack_block(lists: Sequence[PostingList], next_term: str) -> bytes:
    """Return the terms, then first row, last row and size of each list, then the lists."""
    terms = "\n".join([next_term, *(item.term for item in lists)]).encode()
    numbers = array("I")
    for item in lists:
        numbers.extend((item.first_row, item.last_row, len(item.data)))
    if sys.byteorder == "big":
        numbers.byteswap()
    return b"".join(
        (len(terms).to_bytes(4, "little"), terms, numbers.tobytes(), *(item.data for item in lists))
    )


def _open_block(block: bytes) -> tuple[str, list[str], array[int], int]:
    """Return the next block's first term, the terms, the numbers of each list, and where the lists start."""
    start = 4 + int.from_bytes(block[:4], "little")
    next_term, *terms = block[4:start].decode().split("\n")
    numbers = array("I", block[start : start + 12 * len(terms)])
    if sys.byteorder == "big":
        numbers.byteswap()
    return next_term, terms, numbers, start + 12 * len(terms)


def _append_integer(data: bytearray, value: int) -> None:
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)


def _decode_integers(data: bytes) -> list[int]:
    values, value, shift = [], 0, 0
    for byte in data:
        if byte < 0x80:
            values.append(value | byte << shift)
            value = shift = 0
        else:
            value |= (byte & 0x7F) << shift
            shift += 7
    return values


# Reading


def read_occurrences(connection: Connection, segments: Sequence[Segment], term: str) -> Occurrences:
    """Return the rows that contain a term, including rows deleted since, and its count in each."""
    if connection.version < POSTINGS_SINCE:
        return _read_legacy_occurrences(connection, term)
    numbers = ",".join(f"({segment.number})" for segment in segments) or "(0)"
    # One block per segment: the one that contains the term, if the segment has it.
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
        if "" < next_term <= term:  # a block between this and the next is hidden
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
        return _concatenate(lists).decode()
    np = _numpy()
    return Occurrences([], []) if np is None else Occurrences(np.zeros(0, np.int64), np.zeros(0, np.int64))


def _read_legacy_occurrences(connection: sqlite3.Connection, term: str) -> Occurrences:
    """Read a term from the FTS5 table of versions 2 and 3."""
    # One long string is read in one step. Row by row takes four times as long and holds the GIL.
    statement = "SELECT group_concat(doc) FROM temp.instances WHERE term = ?"
    (rows,) = connection.execute(statement, (term,)).fetchone()
    np = _numpy()
    if np is None:
        counts = Counter(map(int, rows.split(","))) if rows else Counter()
        return Occurrences(sorted(counts), [counts[row] for row in sorted(counts)])
    return Occurrences(*np.unique(np.fromstring(rows or "", dtype=np.int64, sep=","), return_counts=True))


def iterate_legacy_terms(connection: sqlite3.Connection) -> Iterator[tuple[str, Counter[int]]]:
    """Yield (term, row -> count) of the FTS5 table of versions 2 and 3, in term order."""
    statement = "SELECT term, group_concat(doc) FROM temp.instances GROUP BY term ORDER BY term"
    for term, rows in connection.execute(statement):
        yield term, Counter(map(int, rows.split(",")))


class WeightedPostings(NamedTuple):
    """The slots of the documents that contain a word, and its BM25 weight in each."""

    slots: Any
    weights: Any


class LexicalView:
    """The keyword index of one generation. Caches the posting lists it has read."""

    def __init__(self, rows: RowList, model: BM25) -> None:
        self.rows = rows
        self._model = model
        self._postings: OrderedDict[Word, WeightedPostings] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def search(
        self, connection: Connection, words: Sequence[Word], k: int, allowed: Sequence[int] | None
    ) -> list[tuple[int, float]]:
        """Return (row, score) of the best k and of all that tie with the last of them."""
        if not self.rows.blocks or not words:
            return []
        postings = [self._load(connection, word) for word in words]
        np = _numpy()
        if np is None:
            return self._search_without_numpy(postings, k, allowed)
        scores = np.zeros(len(self.rows.lengths))
        for item in postings:
            # A document is in a word's postings once, so plain indexed addition is correct.
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
        scores: dict[int, float] = {}
        for item in postings:
            for slot, weight in zip(item.slots, item.weights, strict=True):
                scores[slot] = scores.get(slot, 0.0) + weight
        passing = None if allowed is None else set(allowed)
        rows = ((self.rows.row_at(slot), score) for slot, score in scores.items())
        best = [(row, score) for row, score in rows if passing is None or row in passing]
        best.sort(key=lambda match: -match[1])
        return [match for match in best if match[1] >= best[min(k, len(best)) - 1][1]]

    def _load(self, connection: Connection, word: Word) -> WeightedPostings:
        """Return the postings of a word, from the cache if possible."""
        with self._lock:
            cached = self._postings.get(word)
            if cached is not None:
                self._postings.move_to_end(word)
                return cached
        # Outside the lock: two threads may read a word twice, but none waits for another's disk.
        segments = self.rows.file.segments
        postings = self._weigh(_add_up([read_occurrences(connection, segments, term) for term in word]))
        with self._lock:
            if word not in self._postings:
                self._postings[word] = postings
                self._bytes += 12 * len(postings.slots)
            # The newest stays however large it is, because it is in use.
            while self._bytes > _CACHE_BYTES and len(self._postings) > 1:
                _, dropped = self._postings.popitem(last=False)
                self._bytes -= 12 * len(dropped.slots)
        return postings

    def _weigh(self, occurrences: Occurrences) -> WeightedPostings:
        """Return the BM25 weights of a word. Deleted rows are skipped."""
        np, rows, model = _numpy(), self.rows, self._model
        mean_length = rows.file.mean_length
        if np is None:
            pairs = [(rows.find_slot(row), count) for row, count in zip(*occurrences, strict=True)]
            present = [(slot, count) for slot, count in pairs if slot >= 0]
            rarity = idf(rows.file.documents, len(present))
            weights = (
                model.weight(count, rows.lengths[slot], idf=rarity, mean_length=mean_length)
                for slot, count in present
            )
            return WeightedPostings(array("i", (slot for slot, _ in present)), array("d", weights))
        slots, mask = rows.find_slots(occurrences.rows)
        rarity = idf(rows.file.documents, len(slots))
        lengths = rows.lengths_array()[slots]
        weights = model.weight(occurrences.counts[mask], lengths, idf=rarity, mean_length=mean_length)
        return WeightedPostings(slots.astype(np.int32), weights)


def _add_up(parts: Sequence[Occurrences]) -> Occurrences:
    """Return the occurrences of several terms as those of one."""
    if len(parts) == 1:
        return parts[0]
    np = _numpy()
    if np is None:
        counts: Counter[int] = Counter()
        for part in parts:
            counts.update(dict(zip(part.rows, part.counts, strict=True)))
        return Occurrences(sorted(counts), [counts[row] for row in sorted(counts)])
    rows, inverse = np.unique(np.concatenate([part.rows for part in parts]), return_inverse=True)
    totals = np.bincount(
        inverse, weights=np.concatenate([part.counts for part in parts]), minlength=len(rows)
    )
    return Occurrences(rows, totals.astype(np.int64))


def _numpy() -> ModuleType | None:
    """Return numpy if it is installed; keyword search also works without it."""
    try:
        import numpy
    except ModuleNotFoundError:
        return None
    return numpy
