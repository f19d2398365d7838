"""Searches on one snapshot of the file: by words, by vector; runs in worker threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from resift.stores import sqlite_rows as sql
from resift.stores.bm25 import BM25
from resift.stores.documents import Found, ranked
from resift.stores.filtering import Where
from resift.stores.sqlite_file import Connection, DatabaseFile
from resift.stores.sqlite_schema import FileFacts, read_facts
from resift.stores.sqlite_text import TextIndex, terms_of
from resift.stores.sqlite_vectors import VectorIndex
from resift.stores.sqlite_write import Owner
from resift.types import Hit


class Searcher:
    """Both indexes of a file and the snapshots they are asked on."""

    def __init__(self, file: DatabaseFile, owner: Owner, model: BM25) -> None:
        self._file = file
        self._owner = owner
        self._lock = threading.Lock()
        self._words = TextIndex(model)
        self._vectors = VectorIndex()

    def by_words(self, query: str, *, k: int, where: Where | None, source: str) -> list[Hit]:
        """Return the best k by BM25."""
        with self._file.reading() as connection:
            terms = terms_of(connection, query)
            with self._lock:
                view = self._words.view(connection, _snapshot(connection))
            best = view.best(connection, terms, k, sql.allowed_rows(connection, where)) if terms else []
            return _hits(connection, best, k, source)

    def by_vector(self, asked: Any, *, k: int, where: Where | None, source: str) -> list[Hit]:
        """Return the best k by cosine to a unit vector."""
        with self._file.reading() as connection:
            with self._lock:
                facts = _snapshot(connection)
                self._owner.check(facts, dimension=len(asked))
                view = self._vectors.view(connection, facts)
            best = view.best(asked, k, sql.allowed_rows(connection, where)) if len(view.rows) else []
            return _hits(connection, best, k, source)


def _snapshot(connection: Connection) -> FileFacts:
    # Begun under the lock: each later snapshot is at least as new as the view that is cached.
    connection.execute("BEGIN")
    return read_facts(connection)


def _hits(connection: Connection, best: Sequence[tuple[int, float]], k: int, source: str) -> list[Hit]:
    ids = sql.ids_by_number(connection, [row for row, _ in best])
    kept = sorted(best, key=lambda one: (-one[1], ids[one[0]]))[:k]
    rows = sql.rows_by_number(connection, [row for row, _ in kept])
    found = [Found(rows[row].id, rows[row].text, score, sql.metadata_of(rows[row])) for row, score in kept]
    return ranked(found, k=k, source=source)
