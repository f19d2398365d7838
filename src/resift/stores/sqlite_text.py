"""BM25 over the file's FTS5 index: a term's postings are read once and kept while the file stands still.

FTS5's own bm25() has fixed constants and visits each match one by one; this reads the same index, scores a
term's postings in one sweep, and lets k1 and b be the ones that published baselines use.
"""

from __future__ import annotations

import sqlite3
import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence

from resift.stores.bm25 import BM25
from resift.stores.postings import Postings, best_of, postings_of
from resift.stores.sqlite_file import Connection
from resift.stores.sqlite_rows import removed_since
from resift.stores.sqlite_schema import FileFacts, read_facts

STOPWORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these "
    "they this to was will with"
)
_CACHE_BYTES = 64 * 1024 * 1024


class TextView:
    """The index as of one generation; never changes but for the postings it learns."""

    def __init__(self, facts: FileFacts, rows: array[int], lengths: array[int], model: BM25) -> None:
        self.generation = facts.generation
        self.removals = facts.removals
        self.rows = rows
        self.lengths = lengths
        self.model = model
        self._postings: OrderedDict[str, Postings] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def best(
        self, connection: sqlite3.Connection, terms: Sequence[str], k: int, allowed: Sequence[int] | None
    ) -> list[tuple[int, float]]:
        """Return (row, score) of the best k and of everything that ties with the last of them."""
        if not self.rows:
            return []
        postings = [self._of(connection, term) for term in terms]
        return best_of(self.rows, postings, k, allowed)

    def _of(self, connection: sqlite3.Connection, term: str) -> Postings:
        with self._lock:
            known = self._postings.get(term)
            if known is not None:
                self._postings.move_to_end(term)
                return known
        read = self._read(connection, term)
        with self._lock:
            if term not in self._postings:
                self._postings[term] = read
                self._bytes += read.bytes
            while self._bytes > _CACHE_BYTES and len(self._postings) > 1:
                _, dropped = self._postings.popitem(last=False)
                self._bytes -= dropped.bytes
        return read

    def _read(self, connection: sqlite3.Connection, term: str) -> Postings:
        # One long string is read in one step; row by row it takes four times as long and the GIL each time.
        every = "SELECT group_concat(doc) FROM temp.instances WHERE term = ?"
        (docs,) = connection.execute(every, (term,)).fetchone()
        return postings_of(docs or "", self.rows, self.lengths, self.model)


class TextIndex:
    """Keeps one TextView in step with the file."""

    def __init__(self, model: BM25) -> None:
        self._model = model
        self._view: TextView | None = None

    def view(self, connection: sqlite3.Connection, facts: FileFacts) -> TextView:
        """Return the view of the connection's snapshot; call under the store's lock."""
        view = self._view
        if view is None or view.generation != facts.generation:
            view = self._view = self._advanced(connection, facts, view)
        return view

    def _advanced(self, connection: sqlite3.Connection, facts: FileFacts, old: TextView | None) -> TextView:
        gone = None if old is None else removed_since(connection, old.removals, facts.removals)
        rows, lengths = array("q"), array("i")
        if old is not None and gone is not None:
            rows, lengths = old.rows[:], old.lengths[:]
            for row in gone:
                _drop(row, rows, lengths)
        last = rows[-1] if rows else 0
        for row, size in connection.execute(
            "SELECT id, sz FROM words_docsize WHERE id > ? ORDER BY id", (last,)
        ):
            rows.append(row)
            lengths.append(_varint(size))
        return TextView(facts, rows, lengths, self._model)


def _drop(row: int, rows: array[int], lengths: array[int]) -> None:
    place = bisect_left(rows, row)
    # A row that came and went between two looks was never here.
    if place < len(rows) and rows[place] == row:
        del rows[place], lengths[place]


def terms_of(connection: Connection, query: str) -> list[str]:
    """Return the query's terms exactly as the index's tokenizer writes them; stop words only if alone."""
    if connection.stop_words is None:
        connection.stop_words = _prepare(connection, read_facts(connection).tokenizer)
    terms = _terms(connection, query)
    return [term for term in terms if term not in connection.stop_words] or terms


def _prepare(connection: Connection, tokenizer: str) -> frozenset[str]:
    """Create the connection's temporary views of the index; return the stop words in the index's spelling."""
    for table in (
        "instances USING fts5vocab(main, words, instance)",
        f"asked USING fts5(text, content='', tokenize='{tokenizer}')",
        "asked_terms USING fts5vocab(temp, asked, instance)",
    ):
        connection.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.{table}")
    return frozenset(_terms(connection, STOPWORDS))


def _terms(connection: sqlite3.Connection, text: str) -> list[str]:
    connection.execute("INSERT INTO temp.asked (asked) VALUES ('delete-all')")
    connection.execute("INSERT INTO temp.asked (rowid, text) VALUES (1, ?)", (text,))
    return [term for (term,) in connection.execute("SELECT term FROM temp.asked_terms ORDER BY offset")]


def _varint(size: bytes) -> int:
    """Return a document's length in words from FTS5's %_docsize table (one varint per column)."""
    value = 0
    for byte in size:
        value = value << 7 | byte & 0x7F
    return value
