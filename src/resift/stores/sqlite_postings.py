"""A term's occurrences from the file's FTS5 index: from its pages in compiled code, else by its vocabulary.

Both give the same. The pages are read only where they have the form that is known; rows that were removed are
still in them and are dropped by whoever knows which rows there are.
"""

from __future__ import annotations

import contextlib
import sqlite3
from array import array
from collections.abc import Iterator
from ctypes import addressof, c_char_p, c_int32, c_int64, c_void_p
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from resift.errors import MissingExtraError, require
from resift.native.library import native_kernel
from resift.stores.postings import Occurrences, occurrences_of
from resift.stores.sqlite_file import Connection

_KNOWN_FORMAT = 4  # of FTS5's tables
_STRUCTURE = 10  # the record that lists the segments
_SEGMENT_SHIFT = 37
_MAIN_INDEX = b"0"  # what FTS5 writes before each term
_FIRST_PAGES = 2
_BYTES_PER_ROW = 3  # at least: number, size, one position
_OTHER_STRUCTURE = b"\xff\x00\x00\x01"


class _Segment(NamedTuple):
    number: int
    first_page: int
    last_page: int


class _UnknownForm(Exception):
    """The pages are not as this module knows them."""


def read_occurrences(connection: Connection, term: str) -> Occurrences:
    """Return the rows that hold a term and how often."""
    library = native_kernel().library
    if connection.version > 1 and hasattr(library, "fts5_postings"):
        # FTS5 itself knows where its pages have another form, or says that the file is damaged; and words
        # are found without any package, numpy included.
        with contextlib.suppress(_UnknownForm, MissingExtraError):
            return _from_pages(connection, term.encode(), _decoder(library))
    # One long string is read in one step; row by row it takes four times as long and the GIL each time.
    every = "SELECT group_concat(doc) FROM temp.instances WHERE term = ?"
    (rows,) = connection.execute(every, (term,)).fetchone()
    return occurrences_of(rows or "")


def _from_pages(connection: sqlite3.Connection, term: bytes, decode: Any) -> Occurrences:
    np = require("numpy", extra="local")
    parts = [_in_segment(connection, one, _MAIN_INDEX + term, decode) for one in _segments(connection)]
    parts = [part for part in parts if len(part.rows)]
    if not parts:
        return Occurrences(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32))
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([part.rows for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    order = np.argsort(rows, kind="stable")
    return Occurrences(rows[order], counts[order])


def _segments(connection: sqlite3.Connection) -> list[_Segment]:
    (version,) = connection.execute("SELECT v FROM terms_config WHERE k = 'version'").fetchone()
    (record,) = connection.execute("SELECT block FROM terms_data WHERE id = ?", (_STRUCTURE,)).fetchone()
    if version != _KNOWN_FORMAT or record[4:8] == _OTHER_STRUCTURE:
        raise _UnknownForm
    try:
        numbers = _numbers(record[4:])
        levels, _, _ = next(numbers), next(numbers), next(numbers)
        found = []
        for _ in range(levels):
            _, count = next(numbers), next(numbers)
            found += [_Segment(next(numbers), next(numbers), next(numbers)) for _ in range(count)]
    except StopIteration:
        raise _UnknownForm from None
    return found


def _in_segment(connection: sqlite3.Connection, segment: _Segment, term: bytes, decode: Any) -> Occurrences:
    """Read the pages of the term, more of them as long as its rows go on."""
    found = connection.execute(
        "SELECT pgno FROM terms_idx WHERE segid = ? AND term <= ? ORDER BY term DESC LIMIT 1",
        (segment.number, term),
    ).fetchone()
    first = segment.first_page if found is None else max(segment.first_page, found[0] >> 1)
    base = segment.number << _SEGMENT_SHIFT
    count = _FIRST_PAGES
    while True:
        last = min(first + count - 1, segment.last_page)
        statement = "SELECT block FROM terms_data WHERE id BETWEEN ? AND ? ORDER BY id"
        pages = [page for (page,) in connection.execute(statement, (base + first, base + last))]
        if len(pages) != last - first + 1:
            raise _UnknownForm
        occurrences, finished = _decoded(pages, term, decode)
        if finished or last == segment.last_page:
            return occurrences
        count *= 8


def _decoded(pages: list[bytes], term: bytes, decode: Any) -> tuple[Occurrences, bool]:
    np = require("numpy", extra="local")
    data = b"".join(pages)
    offsets = array("q", accumulate(map(len, pages), initial=0))
    capacity = len(data) // _BYTES_PER_ROW + 1
    rows, counts = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int32)
    finished = c_int32()
    found = decode(
        data, offsets.buffer_info()[0], len(pages), term, len(term),
        rows.ctypes.data, counts.ctypes.data, capacity, addressof(finished),
    )  # fmt: skip
    if found < 0:
        raise _UnknownForm
    return Occurrences(rows[:found].copy(), counts[:found].copy()), bool(finished.value)


@cache
def _decoder(library: Any) -> Any:
    decode = library.fts5_postings
    decode.argtypes = (
        c_char_p, c_void_p, c_int64, c_char_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p,
    )  # fmt: skip
    decode.restype = c_int64
    return decode


def _numbers(record: bytes) -> Iterator[int]:
    """Yield the numbers of a record: seven bits a byte, the highest first."""
    value = 0
    for byte in record:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            yield value
            value = 0
