"""BM25 over the file's FTS5 index: a term's postings are read once and kept while the file stands still.

FTS5's own bm25() has fixed constants and visits each match one by one; this reads the same index, scores a
term's postings in one sweep, and lets k1 and b be the ones that published baselines use.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from resift.stores.postings import Postings, best_of, merged, postings_of
from resift.stores.sqlite_postings import read_occurrences
from resift.stores.sqlite_schema import Connection
from resift.stores.sqlite_view import RowView
from resift.text.bm25 import BM25

_CACHE_BYTES = 64 * 1024 * 1024

Word = tuple[str, ...]
"""The index terms that count as one word of a query: its stems in the languages of the index."""


class TextView:
    """The index as of one generation; never changes but for the postings it learns."""

    def __init__(self, rows: RowView, model: BM25) -> None:
        self.rows = rows
        self.model = model
        self._postings: OrderedDict[Word, Postings] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def best(
        self, connection: Connection, words: Sequence[Word], k: int, allowed: Sequence[int] | None
    ) -> list[tuple[int, float]]:
        """Return (row, score) of the best k and of everything that ties with the last of them."""
        if not self.rows.blocks or not words:
            return []
        return best_of(self.rows, [self.postings(connection, word) for word in words], k, allowed)

    def postings(self, connection: Connection, word: Word) -> Postings:
        """Return the postings of a word, from memory where it was asked for before."""
        with self._lock:
            known = self._postings.get(word)
            if known is not None:
                self._postings.move_to_end(word)
                return known
        # Outside the lock: two threads may read one word twice, but none waits for another's disk.
        found = [read_occurrences(connection, term) for term in word]
        read = postings_of(merged(found), self.rows, self.model)
        with self._lock:
            if word not in self._postings:
                self._postings[word] = read
                self._bytes += read.bytes
            # The last one stays, however large: it is in use.
            while self._bytes > _CACHE_BYTES and len(self._postings) > 1:
                _, dropped = self._postings.popitem(last=False)
                self._bytes -= dropped.bytes
        return read


class TextIndex:
    """Keeps one TextView in step with the rows; call under the store's lock."""

    def __init__(self, model: BM25) -> None:
        self._model = model
        self._view: TextView | None = None

    def view(self, rows: RowView) -> TextView:
        """Return the view of these rows."""
        if self._view is None or self._view.rows is not rows:
            self._view = TextView(rows, self._model)
        return self._view
