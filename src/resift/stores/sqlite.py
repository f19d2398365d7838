"""SQLiteStore: the embedded default. One file holds documents, their words and their vectors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from resift.candidates import Candidate
from resift.errors import InputError, require
from resift.protocols import Embedder
from resift.stores import sqlite_rows as sql
from resift.stores.bm25 import BM25
from resift.stores.documents import documents_from, ids_from, in_order, nothing_to_find
from resift.stores.embedding import identity_of, unit_vectors
from resift.stores.filtering import Where, conditions
from resift.stores.hybrid import DEPTH, fuse_views
from resift.stores.memory import Mode, resolve_mode
from resift.stores.sqlite_file import DatabaseFile
from resift.stores.sqlite_schema import FileFacts, read_facts
from resift.stores.sqlite_search import Searcher
from resift.stores.sqlite_write import Owner, same, write_batch
from resift.types import Hit

T = TypeVar("T")

_BATCH = 512  # documents per embedding call and transaction
_READERS = 4


class SQLiteStore:
    """Documents in one SQLite file, found by words (BM25), by vectors (exact cosine) or by both (RRF 60).

    `add` and `delete` return after the commit reached the disk. Several processes may read while one
    writes. Without an embedder the mode is "text", with one "hybrid". `stemming` and the embedder are
    properties of the file: they are fixed when it is created, and a different embedder is refused.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        embedder: Embedder | None = None,
        name: str = "sqlite",
        mode: Mode | None = None,
        stemming: bool = True,
        k1: float = BM25().k1,
        b: float = BM25().b,
        read_only: bool = False,
    ) -> None:
        self.name = name
        self.path = os.fspath(path)
        self.embedder = embedder
        self.mode: Mode = resolve_mode(mode, embedder, default="hybrid")
        model = BM25(k1, b).checked()
        self._file = DatabaseFile(path, name=name, stemming=stemming, read_only=read_only)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"resift-{name}-write")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix=f"resift-{name}-read")
        self._owner = Owner(self.path, name, None if embedder is None else identity_of(embedder))
        self._searcher = Searcher(self._file, self._owner, model)
        self._refuse_wrong_file()

    @property
    def text(self) -> TextSearch:
        """The same documents found by words only, as a store of its own."""
        return TextSearch(self)

    @property
    def vectors(self) -> VectorSearch:
        """The same documents found by vectors only, as a store of its own."""
        if self.embedder is None:
            raise InputError(f"Store {self.name!r} has no embedder, so it cannot search by vectors.")
        return VectorSearch(self)

    def facts(self) -> FileFacts:
        """Return what the file says about itself: generation, embedder, dimension, tokenizer."""
        with self._file.reading() as connection:
            return read_facts(connection)

    def _refuse_wrong_file(self) -> None:
        try:
            facts = self.facts()
            self._owner.check(facts)
            if self.embedder is not None and not facts.dimension:
                self._owner.refuse_wordy(self._file)
        except BaseException:
            self._file.close()
            raise

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those of the same id; return how many were given.

        Documents whose text did not change are not embedded again. Large calls are committed in batches.
        """
        self._file.refuse_read_only()
        given = documents_from(documents)
        for start in range(0, len(given), _BATCH):
            await self._add_batch(given[start : start + _BATCH])
        return len(given)

    async def delete(self, ids: Iterable[str]) -> int:
        """Remove documents; return how many were there."""
        self._file.refuse_read_only()
        wanted = ids_from(ids)
        if not wanted:
            return 0

        def work() -> int:
            with self._file.writing() as connection:
                return sql.remove(connection, sql.rows_by_id(connection, wanted).values())

        return await self._run(self._writer, work)

    async def get(self, ids: Iterable[str]) -> list[Hit]:
        """Return the documents of these ids in the order asked; unknown ids are left out."""
        wanted = ids_from(ids)

        def work() -> list[Hit]:
            with self._file.reading() as connection:
                rows = sql.rows_by_id(connection, wanted)
            return in_order(wanted, {id: self._document(row) for id, row in rows.items()})

        return await self._run(self._readers, work)

    async def vectors_of(self, ids: Iterable[str]) -> dict[str, Any]:
        """Return id -> unit vector of the documents that have one."""
        wanted = ids_from(ids)
        if self.embedder is None:
            return {}
        np = require("numpy", extra="local")

        def work() -> dict[str, Any]:
            with self._file.reading() as connection:
                held = sql.vectors_by_id(connection, wanted)
            return {id: np.frombuffer(vector, dtype="<f4") for id, vector in held.items()}

        return await self._run(self._readers, work)

    async def ids(self, where: Where | None = None) -> list[str]:
        """Return the ids of all documents whose metadata equals `where`, sorted."""
        conditions(where)

        def work() -> list[str]:
            with self._file.reading() as connection:
                numbers = sql.allowed_rows(connection, where)
                if numbers is None:
                    return [id for (id,) in connection.execute("SELECT id FROM documents ORDER BY id")]
                return sorted(sql.ids_by_number(connection, numbers).values())

        return await self._run(self._readers, work)

    async def count(self) -> int:
        """Return how many documents there are."""

        def work() -> int:
            with self._file.reading() as connection:
                return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])

        return await self._run(self._readers, work)

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata equals `where`."""
        if self.mode == "text":
            return await self.search_text(query, k=k, where=where, source=self.name)
        if self.mode == "vector":
            return await self.search_vectors(query, k=k, where=where, source=self.name)
        depth = max(k, DEPTH) if k else 0
        sides = await asyncio.gather(
            self.search_text(query, k=depth, where=where, source=f"{self.name}.text"),
            self.search_vectors(query, k=depth, where=where, source=f"{self.name}.vectors"),
        )
        return fuse_views(sides, k=k, source=self.name) if any(sides) else []

    async def search_text(self, query: str, *, k: int, where: Where | None, source: str) -> list[Hit]:
        """Search by words: BM25 over the FTS5 index."""
        conditions(where)
        if nothing_to_find(query, k):
            return []
        work = partial(self._searcher.by_words, query, k=k, where=where, source=source)
        return await self._run(self._readers, work)

    async def search_vectors(self, query: str, *, k: int, where: Where | None, source: str) -> list[Hit]:
        """Search by meaning: exact cosine over all vectors."""
        conditions(where)
        if nothing_to_find(query, k):
            return []
        assert self.embedder is not None  # noqa: S101 - resolve_mode and `vectors` refuse to come here without
        asked = (await unit_vectors(self.embedder, [query], kind="query", store=self.name))[0]
        work = partial(self._searcher.by_vector, asked, k=k, where=where, source=source)
        return await self._run(self._readers, work)

    async def sources(self) -> Mapping[str, str]:
        """Return path -> digest of every file that was indexed to its end."""

        def work() -> Mapping[str, str]:
            with self._file.reading() as connection:
                return dict(connection.execute("SELECT path, digest FROM sources"))

        return await self._run(self._readers, work)

    async def mark_source(self, path: str, digest: str | None) -> None:
        """Remember that a file is indexed to its end, or with None forget it."""

        def work() -> None:
            with self._file.writing() as connection:
                if digest is None:
                    connection.execute("DELETE FROM sources WHERE path = ?", (path,))
                else:
                    connection.execute("INSERT OR REPLACE INTO sources VALUES (?, ?)", (path, digest))

        await self._run(self._writer, work)

    async def close(self) -> None:
        """Finish running work and close the file."""
        await asyncio.to_thread(self.release)

    def release(self) -> None:
        """Do what `close` does, without async: waits for running work."""
        self._writer.shutdown()
        self._readers.shutdown()
        self._file.close()

    async def _add_batch(self, given: Sequence[Hit]) -> None:
        before = await self._run(self._readers, lambda: self._known(given))
        fresh = [hit for hit in given if hit.id not in before or before[hit.id].text != hit.text]
        changed = [hit for hit in given if hit.id not in before or not same(before[hit.id], hit)]
        vectors: dict[str, bytes] = {}
        if self.embedder is not None and fresh:
            texts = [hit.text for hit in fresh]
            rows = await unit_vectors(self.embedder, texts, kind="document", store=self.name)
            vectors = {hit.id: row.astype("<f4").tobytes() for hit, row in zip(fresh, rows, strict=True)}
        if changed:
            again = await self._run(self._writer, lambda: self._write(changed, vectors))
            if again:
                await self._add_batch(again)

    def _known(self, given: Sequence[Hit]) -> dict[str, sql.Row]:
        with self._file.reading() as connection:
            return sql.rows_by_id(connection, [hit.id for hit in given])

    def _write(self, given: Sequence[Hit], vectors: Mapping[str, bytes]) -> list[Hit]:
        with self._file.writing() as connection:
            return write_batch(connection, given, vectors, self._owner)

    def _document(self, row: sql.Row) -> Hit:
        return Hit(row.id, row.text, source=self.name, metadata=sql.metadata_of(row))

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        self._file.refuse_closed()
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        except UnicodeEncodeError as exc:
            raise InputError(
                "A text holds half a character (a lone surrogate); clean it and try again."
            ) from exc


class TextSearch:
    """A SQLiteStore seen as a DocStore that finds by words only."""

    kind = "doc"

    def __init__(self, store: SQLiteStore) -> None:
        self.store = store
        self.name = f"{store.name}.text"

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits by BM25."""
        return await self.store.search_text(query, k=k, where=where, source=self.name)


class VectorSearch:
    """A SQLiteStore seen as a VectorStore that finds by vectors only."""

    kind = "vector"

    def __init__(self, store: SQLiteStore) -> None:
        self.store = store
        self.name = f"{store.name}.vectors"

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits by cosine."""
        return await self.store.search_vectors(query, k=k, where=where, source=self.name)
