"""A term's occurrences from the file's FTS5 index: from its pages in compiled code, else by its vocabulary.

Both give the same. The pages are read only where they have the form that is known; rows that were removed are
still in them and are dropped by whoever knows which rows there are.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator
from ctypes import addressof, c_char_p, c_int32, c_int64, c_void_p
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from resift._internal.arrays import np
from resift.errors import MissingExtraError
from resift.native.library import native_kernel
from resift.stores.postings import Occurrences, occurrences_of
from resift.stores.sqlite_checks import Damage, checksum
from resift.stores.sqlite_schema import Connection

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
    pages = _pages(connection, _MAIN_INDEX + term.encode()) if connection.version > 1 else None
    library = native_kernel().library
    if pages is not None and hasattr(library, "fts5_postings"):
        # FTS5 itself knows where its pages have another form; and words are found without any package,
        # numpy included.
        with contextlib.suppress(_UnknownForm, MissingExtraError):
            return _from_pages(pages, _MAIN_INDEX + term.encode(), _decoder(library))
    # One long string is read in one step; row by row it takes four times as long and the GIL each time.
    every = "SELECT group_concat(doc) FROM temp.instances WHERE term = ?"
    (rows,) = connection.execute(every, (term,)).fetchone()
    return occurrences_of(rows or "")


def _from_pages(segments: list[list[bytes]], term: bytes, decode: Any) -> Occurrences:
    parts = [_decoded(pages, term, decode) for pages in segments]
    parts = [part for part in parts if len(part.rows)]
    if not parts:
        return Occurrences(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32))
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([part.rows for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    # Segments overlap in rows: FTS5 merges them later, at its own time.
    order = np.argsort(rows, kind="stable")
    return Occurrences(rows[order], counts[order])


def _pages(connection: Connection, term: bytes) -> list[list[bytes]] | None:
    """Return the pages of each segment that may hold a term, or None where FTS5 has another form of them."""
    try:
        return [_in_segment(connection, one, term) for one in _segments(connection)]
    except _UnknownForm:
        return None


def _segments(connection: Connection) -> list[_Segment]:
    version = connection.execute("SELECT v FROM terms_config WHERE k = 'version'").fetchone()
    (record,) = _blocks(connection, _STRUCTURE, _STRUCTURE)
    if version != (_KNOWN_FORMAT,) or record[4:8] == _OTHER_STRUCTURE:
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


def _in_segment(connection: Connection, segment: _Segment, term: bytes) -> list[bytes]:
    """Read the page where the term must be and all up to the next that begins another term."""
    found = connection.execute(
        "SELECT pgno, term FROM terms_idx WHERE segid = ? AND term <= ? ORDER BY term DESC LIMIT 1",
        (segment.number, term),
    ).fetchone()
    first = segment.first_page if found is None else max(segment.first_page, found[0] >> 1)
    base = segment.number << _SEGMENT_SHIFT
    pages: list[bytes] = []
    following = None
    while following is None and first + len(pages) <= segment.last_page:
        start = first + len(pages)
        # Eight times as many each time: rare words need a page, common ones hundreds.
        last = min(start + max(_FIRST_PAGES, 7 * len(pages)) - 1, segment.last_page)
        fresh = _blocks(connection, base + start, base + last)
        following = next((page for page in fresh[not pages :] if _first_term(page)), None)
        pages += fresh
    # The index of pages has no checksum; the pages themselves say whether it led to the right one. It names a
    # page by as much of its first term as tells it from the term before, so that term may come after ours.
    led = found[1] if found is not None and isinstance(found[1], bytes) else b""
    wrong = first > segment.first_page and not (led and _first_term(pages[0]).startswith(led))
    if wrong or (following is not None and _first_term(following) <= term):
        raise Damage("terms_idx", segment.number)
    return pages


def leads_to_all_pages(connection: Connection) -> bool:
    """Say whether the index of pages names every page where a term begins, by a term that belongs there."""
    try:
        segments = _segments(connection)
    except _UnknownForm:
        return True  # searches leave such files to FTS5
    for segment in segments:
        base = segment.number << _SEGMENT_SHIFT
        pages = _blocks(connection, base + segment.first_page, base + segment.last_page)
        firsts = [
            (at, term) for at, page in enumerate(pages, segment.first_page) if (term := _first_term(page))
        ]
        statement = "SELECT pgno >> 1, term FROM terms_idx WHERE segid = ? ORDER BY term"
        held = connection.execute(statement, (segment.number,)).fetchall()
        if [at for at, _ in held] != [at for at, _ in firsts]:
            return False
        between = zip(firsts, held[1:], firsts[1:], strict=False)
        if not all(before < led <= first for (_, before), (_, led), (_, first) in between):
            return False
    return True


def _blocks(connection: Connection, first: int, last: int) -> list[bytes]:
    """Return the records of these numbers, all of which must be there as they were written."""
    if not connection.checked:
        plain = "SELECT block FROM terms_data WHERE id BETWEEN ? AND ? ORDER BY id"
        blocks = [block for (block,) in connection.execute(plain, (first, last))]
        if len(blocks) != last - first + 1:
            raise _UnknownForm
        return blocks
    statement = (
        "SELECT terms_data.id, block, checksum FROM terms_data LEFT JOIN term_checks USING (id) "
        "WHERE terms_data.id BETWEEN ? AND ? ORDER BY terms_data.id"
    )
    blocks = []
    for number, block, check in connection.execute(statement, (first, last)):
        if number != first + len(blocks) or checksum(number, block) != check:
            raise Damage("terms_data", number)
        blocks.append(block)
    if len(blocks) != last - first + 1:
        raise Damage("terms_data", last)
    return blocks


def _first_term(page: bytes) -> bytes:
    """Return the first term that begins on a page, or nothing where none does."""
    footer = int.from_bytes(page[2:4], "big")
    at = next(_numbers(page[footer:]), 0)
    size = next(_numbers(page[at:]), 0)
    start = at + (1 if size < 0x80 else 2)
    return page[start : start + size] if at else b""


def _decoded(pages: list[bytes], term: bytes, decode: Any) -> Occurrences:
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
    return Occurrences(rows[:found].copy(), counts[:found].copy())


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
