"""Keyword and vector search on one snapshot of the file. Runs in worker threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from resift._internal.arrays import Array, np
from resift._internal.forking import after_fork
from resift.stores.base import Match, SearchHits, top_k
from resift.stores.filters import Test, passes_all
from resift.stores.sqlite.attributes import find_rows
from resift.stores.sqlite.database import DatabaseFile
from resift.stores.sqlite.lexical_index import LexicalView
from resift.stores.sqlite.rows import (
    RowList,
    RowListCache,
    read_ids,
    read_lazy_documents,
    read_rows,
    read_vectors,
)
from resift.stores.sqlite.tables import Connection, IndexCorruptedError, read_metadata
from resift.stores.sqlite.vector_index import VectorIndex
from resift.stores.sqlite.writer import FileUser
from resift.text import Analyzer
from resift.text.bm25 import BM25
from resift.types import Hit
from resift.types.hit import lazy_hits


class Searcher:
    """The in-memory indexes of a file, kept up to date with its snapshots."""

    def __init__(self, file: DatabaseFile, model: BM25, analyzer: Analyzer, *, exact: bool | None) -> None:
        self._file = file
        self._model = model
        self._analyzer = analyzer
        self._lock = threading.Lock()
        self._rows = RowListCache()
        self._lexical: LexicalView | None = None
        self._vectors = VectorIndex(exact)
        after_fork(self)

    def search_text(
        self, query: str, *, k: int, tests: Sequence[Test], source: str, lazy: bool = False
    ) -> list[Hit]:
        """Return the best k by BM25. `lazy` hits decode their text and metadata on first use."""
        with self._file.reading() as connection:
            with self._lock:
                rows = self._begin_snapshot(connection)
                view = self._lexical
                if view is None or view.rows is not rows:
                    view = self._lexical = LexicalView(rows, self._model)
            words = self._analyzer.query_words(query, languages=rows.file.languages)
            matches = view.search(connection, words, k, find_rows(connection, tests))
            return self._load_hits(connection, matches, k, tests, source, lazy=lazy)

    def search_vectors(
        self, query: Array, *, k: int, tests: Sequence[Test], source: str, user: FileUser, lazy: bool = False
    ) -> list[Hit]:
        """Return the best k by cosine to a unit vector."""
        with self._file.reading() as connection:
            with self._lock:
                rows = self._begin_snapshot(connection)
                user.check_embedder(rows.file, dimension=len(query))
                view = self._vectors.view(connection, rows)
            neighbors = view.search(connection, query, k, find_rows(connection, tests))
            hits = self._load_hits(connection, neighbors.matches, k, tests, source, lazy=lazy)
            return SearchHits(hits, approximate=neighbors.approximate)

    def measure_recall(self, queries: int, k: int) -> float:
        """Return the share of the exact best k that bit codes find, for the vectors of some documents."""
        with self._file.reading() as connection:
            with self._lock:
                rows = self._begin_snapshot(connection)
                # Separate views: the store has only one of the two.
                exact = VectorIndex(True).view(connection, rows)
                coded = VectorIndex(False).view(connection, rows)
            slots = rows.mask(None).nonzero()[0]
            if not len(slots) or not rows.file.dimension:
                return 1.0
            sample = rows.rows_at(slots[:: max(1, len(slots) // queries)][:queries]).tolist()
            shares = []
            for vector in read_vectors(connection, sample).values():
                query = np.frombuffer(vector, dtype="<f4")
                top: list[set[int]] = []
                for view in (exact, coded):
                    matches = view.search(connection, query, k, None).matches
                    best = sorted(matches, key=lambda match: (-match[1], match[0]))[:k]
                    top.append({row for row, _ in best})
                shares.append(len(top[0] & top[1]) / len(top[0]))
            return sum(shares) / len(shares)

    def reset_after_fork(self) -> None:
        """Replace the lock in a forked child."""
        self._lock = threading.Lock()

    def _begin_snapshot(self, connection: Connection) -> RowList:
        # Called with the lock held, so that each snapshot is at least as new as the cached rows.
        connection.execute("BEGIN")
        file = read_metadata(connection)
        connection.version = file.version  # another process may have converted the file
        return self._rows.read(connection, file)

    def _load_hits(
        self,
        connection: Connection,
        matches: list[tuple[int, float]],
        k: int,
        tests: Sequence[Test],
        source: str,
        *,
        lazy: bool,
    ) -> list[Hit]:
        """Return the best k as hits; `matches` may have more that tie with the last."""
        if len(matches) > 2 * k:  # many ties: the ids decide, and the texts are not needed
            ids = read_ids(connection, [row for row, _ in matches])
            matches = sorted(matches, key=lambda match: (-match[1], ids[match[0]]))[:k]
        numbers = [row for row, _ in matches]
        if lazy and not tests:
            documents = read_lazy_documents(connection, numbers, self._file)
            best = [(-score, *documents[number]) for number, score in matches]
            best.sort(key=lambda match: match[:2])
            return lazy_hits([(id, -score, document) for score, id, document in best[:k]], source=source)
        rows = read_rows(connection, numbers)
        found = []
        for number, score in matches:
            row = rows[number]
            metadata = row.decode_metadata()
            # The attributes said that it passes; if the document disagrees, one of them is damaged.
            if not passes_all(metadata, tests):
                raise IndexCorruptedError("attributes", number)
            found.append(Match(row.id, row.text, score, metadata))
        return top_k(found, k=k, source=source)
