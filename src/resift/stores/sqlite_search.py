"""Searches on one snapshot of the file: by words, by vector; runs in worker threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from resift._internal.arrays import Array
from resift._internal.forking import after_fork
from resift.errors import StoreError
from resift.stores import sqlite_rows as sql
from resift.stores import sqlite_version_1 as version_1
from resift.stores.documents import Found, SearchHits, ranked
from resift.stores.filtering import conditions, passes
from resift.stores.sqlite_checks import Damage
from resift.stores.sqlite_file import DatabaseFile
from resift.stores.sqlite_filters import allowed_rows
from resift.stores.sqlite_schema import Connection, FileFacts, read_facts
from resift.stores.sqlite_text import TextIndex
from resift.stores.sqlite_vectors import VectorIndex, vector_from
from resift.stores.sqlite_view import RowView, RowViews
from resift.stores.sqlite_write import Owner
from resift.text import Analyzer
from resift.text.bm25 import BM25
from resift.types import Hit, Where
from resift.types.hit import lazy_hits


class Searcher:
    """Both indexes of a file and the snapshots they are asked on."""

    def __init__(
        self, file: DatabaseFile, owner: Owner, model: BM25, analyzer: Analyzer, *, exact: bool | None
    ) -> None:
        self._file = file
        self._owner = owner
        self._analyzer = analyzer
        self._lock = threading.Lock()
        self._rows = RowViews()
        self._words = TextIndex(model)
        self._vectors = VectorIndex(exact)
        after_fork(self)

    def by_words(
        self, query: str, *, k: int, where: Where | None, source: str, lazy: bool = False
    ) -> list[Hit]:
        """Return the best k by BM25; `lazy` hits load text and metadata at their first use."""
        with self._file.reading() as connection:
            with self._lock:
                rows = self._snapshot(connection)
                view = self._words.view(rows)
            words = self._words_of(connection, rows.facts, query)
            best = view.best(connection, words, k, allowed_rows(connection, where))
            return self._hits(connection, best, k, where, source, lazy=lazy)

    def by_vector(
        self,
        asked: Array,
        *,
        k: int,
        where: Where | None,
        source: str,
        owner: Owner | None = None,
        lazy: bool = False,
    ) -> list[Hit]:
        """Return the best k by cosine to a unit vector; `lazy` as in `by_words`."""
        with self._file.reading() as connection:
            with self._lock:
                rows = self._snapshot(connection)
                (owner or self._owner).check(rows.facts, dimension=len(asked))
                view = self._vectors.view(connection, rows)
            best = view.best(connection, asked, k, allowed_rows(connection, where))
            hits = self._hits(connection, best.found, k, where, source, lazy=lazy)
            return SearchHits(hits, approximate=best.approximate)

    def recall(self, questions: int, k: int) -> float:
        """Return the share of the exact best k that are found by codes, over evenly spread documents."""
        with self._file.reading() as connection:
            with self._lock:
                rows = self._snapshot(connection)
                # Views of their own: the store has only one of the two.
                exact = VectorIndex(True).view(connection, rows)
                coded = VectorIndex(False).view(connection, rows)
            places = rows.mask(None).nonzero()[0]
            if not len(places) or not rows.facts.dimension:
                return 1.0
            asked = rows.rows_at(places[:: max(1, len(places) // questions)][:questions]).tolist()
            shares = []
            for vector in sql.vectors_by_row(connection, asked).values():
                query = vector_from(vector)
                wanted = {row for row, _ in _cut(exact.best(connection, query, k, None).found, k)}
                found = {row for row, _ in _cut(coded.best(connection, query, k, None).found, k)}
                shares.append(len(wanted & found) / len(wanted))
            return sum(shares) / len(shares)

    def forget_parent(self) -> None:
        """Take a lock of its own in a forked child."""
        self._lock = threading.Lock()

    def _snapshot(self, connection: Connection) -> RowView:
        # Begun under the lock: each later snapshot is at least as new as the view that is cached.
        connection.execute("BEGIN")
        facts = read_facts(connection)
        if (facts.version == 1) != (connection.version == 1):
            raise StoreError(
                "The file was upgraded just now; ask again.", store=self._owner.store, transient=True
            )
        return self._rows.current(connection, facts)

    def _words_of(self, connection: Connection, facts: FileFacts, query: str) -> list[tuple[str, ...]]:
        if facts.version == 1:
            return [(term,) for term in version_1.query_terms(connection, query)]
        return self._analyzer.query_words(query, languages=facts.languages)

    def _hits(
        self,
        connection: Connection,
        best: Sequence[tuple[int, float]],
        k: int,
        where: Where | None,
        source: str,
        *,
        lazy: bool,
    ) -> list[Hit]:
        kept = list(best)
        if len(kept) > 2 * k:  # many tie with the last: their ids decide, not their texts
            ids = sql.ids_by_number(connection, [row for row, _ in best])
            kept = sorted(best, key=lambda match: (-match[1], ids[match[0]]))[:k]
        numbers = [row for row, _ in kept]
        tests = conditions(where)
        if lazy and not tests:
            documents = sql.stored_documents(connection, numbers, self._file)
            found = [(documents[number][0], score, documents[number][1]) for number, score in kept]
            found.sort(key=lambda match: (-match[1], match[0]))
            return lazy_hits(found[:k], source=source)
        rows = sql.rows_by_number(connection, numbers)
        matches = []
        for number, score in kept:
            row = rows[number]
            metadata = row.decoded()
            # The index of attributes said so: where the document itself does not, one of them is damaged.
            if not passes(metadata, tests):
                raise Damage("attributes", number)
            matches.append(Found(row.id, row.text, score, metadata))
        return ranked(matches, k=k, source=source)


def _cut(best: Sequence[tuple[int, float]], k: int) -> list[tuple[int, float]]:
    return sorted(best, key=lambda one: (-one[1], one[0]))[:k]
