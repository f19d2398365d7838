"""SQLiteStore: the embedded default. One file holds documents, their words and their vectors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from resift._internal.arrays import np
from resift.errors import InputError
from resift.external.candidates import Candidate
from resift.protocols import Embedder
from resift.stores import sqlite_rows as sql
from resift.stores.documents import documents_from, ids_from, in_order, nothing_to_find
from resift.stores.embedding import identity_of, unit_vectors
from resift.stores.filtering import conditions
from resift.stores.hybrid import DEPTH, LazyView, StoreView, fuse_views
from resift.stores.memory import Mode, resolve_mode
from resift.stores.read_ahead import read_ahead
from resift.stores.sqlite_file import DatabaseFile, FileChanged
from resift.stores.sqlite_filters import allowed_rows, filter_notes
from resift.stores.sqlite_options import SQLiteOptions
from resift.stores.sqlite_schema import FileFacts, first_facts, read_facts
from resift.stores.sqlite_search import Searcher
from resift.stores.sqlite_upgrade import rebuild_codes, upgrade_file
from resift.stores.sqlite_verify import problems_in
from resift.stores.sqlite_write import Batch, Owner, Writing, same, write_batch
from resift.stores.workers import Workers
from resift.text import Analyzer
from resift.text.bm25 import BM25
from resift.types import Hit, JsonObject, Where
from resift.validation import check_arguments, check_path

T = TypeVar("T")

_BATCH = 512  # documents per embedding call and transaction
_READERS = 4
_TRIES = 5  # reads of a file that is replaced meanwhile


class SQLiteStore:
    """Documents in one SQLite file, found by words (BM25), by vectors (cosine) or by both (RRF 60).

    `add` and `delete` return after the commit reached the disk. Several processes may read while one
    writes. A missing file is an error unless `create` is set. Without an embedder the mode is "text", with
    one "hybrid". `language` and the embedder are properties of the file: they are fixed when it is created,
    and others are refused. From some size on vectors are found by bit codes and the answer says
    `approximate`; `exact=True` compares all of them at any size, `exact=False` never does.
    """

    Options = SQLiteOptions

    @check_arguments
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        embedder: Embedder | None = None,
        name: str = "sqlite",
        mode: Mode | None = None,
        create: bool = False,
        read_only: bool = False,
        language: str | None = None,
        exact: bool | None = None,
        k1: float = BM25().k1,
        b: float = BM25().b,
    ) -> None:
        self.name = name
        self.path = check_path(path, "The index file")
        self.embedder = embedder
        self.mode: Mode = resolve_mode(mode, embedder, default="hybrid")
        model = BM25(k1, b).checked()
        new = Analyzer(language or "auto")
        facts = first_facts(new.language, new.version) if create else None
        self._file = DatabaseFile(path, name=name, facts=facts, read_only=read_only)
        # SQLite lets one connection write at a time: one thread queues what would else wait in a lock.
        self._writer = Workers(f"{name}-write", threads=1)
        self._readers = Workers(f"{name}-read", threads=_READERS)
        self._owner = Owner(self.path, name, None if embedder is None else identity_of(embedder))
        self._analyzer = self._checked_analyzer(language)
        self._searcher = Searcher(self._file, self._owner, model, self._analyzer, exact=exact)

    @property
    def text(self) -> StoreView:
        """The same documents found by words only, as a store of its own."""
        return LazyView(self, "text", self.search_text)

    @property
    def vectors(self) -> StoreView:
        """The same documents found by vectors only, as a store of its own."""
        if self.embedder is None:
            raise InputError(f"Store {self.name!r} has no embedder, so it cannot search by vectors.")
        return LazyView(self, "vectors", partial(self.search_vectors, embedder=self.embedder))

    def vectors_by(self, embedder: Embedder) -> StoreView:
        """Return the same documents found by vectors, whose questions this embedder embeds."""
        owner = Owner(self.path, self.name, identity_of(embedder))
        owner.check(self.facts())
        return LazyView(self, "vectors", partial(self.search_vectors, embedder=embedder))

    def use_embedder(self, embedder: Embedder) -> None:
        """Find and add by vectors as well, with the embedder that the file was built with."""
        owner = Owner(self.path, self.name, identity_of(embedder))
        owner.check(self.facts())
        self.embedder, self.mode, self._owner = embedder, "hybrid", owner

    def facts(self) -> FileFacts:
        """Return what the file says about itself: version, generation, embedder, languages, size."""
        with self._file.reading() as connection:
            return read_facts(connection)

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those of the same id; return how many were given.

        Documents whose text did not change are not embedded again. Large calls are committed in batches.
        """
        self._file.refuse_read_only()
        given = documents_from(documents)

        async def prepared() -> AsyncGenerator[Batch, None]:
            for start in range(0, len(given), _BATCH):
                yield await self.prepare(given[start : start + _BATCH])

        # The next batch is analysed and embedded while this one is written.
        async with aclosing(read_ahead(prepared(), depth=1)) as batches:
            async for batch in batches:
                await self.write(batch)
        return len(given)

    async def prepare(self, documents: Iterable[Candidate]) -> Batch:
        """Do what `add` does before it writes: analyse what the file has not, and embed the new texts."""
        self._file.refuse_read_only()
        given = documents_from(documents)
        before = await self._run(self._readers, lambda: self._known(given))
        # Only texts are embedded: changed metadata keeps its vector.
        fresh = [hit for hit in given if hit.id not in before or before[hit.id].text != hit.text]
        changed = [hit for hit in given if hit.id not in before or not same(before[hit.id], hit)]
        vectors: dict[str, bytes] = {}
        if self.embedder is not None and fresh:
            texts = [hit.text for hit in fresh]
            rows = await unit_vectors(self.embedder, texts, kind="document", store=self.name)
            vectors = {hit.id: row.astype("<f4").tobytes() for hit, row in zip(fresh, rows, strict=True)}
        analyse = self._analyzer.analyze
        analyses = await self._run(self._readers, lambda: {hit.id: analyse(hit.text) for hit in changed})
        return Batch(changed, analyses, vectors)

    async def write(self, batch: Batch) -> None:
        """Store what `prepare` returned, in one transaction."""
        while batch.hits:
            # Another process may have changed a document since it was compared: that part is prepared anew.
            again = await self._run(self._writer, partial(self._write, batch))
            batch = await self.prepare(again)

    async def delete(self, ids: Iterable[str | int]) -> int:
        """Remove documents; return how many were there."""
        self._file.refuse_read_only()
        wanted = ids_from(ids)

        def work() -> int:
            with self._file.writing() as connection:
                writing = Writing(connection, self._analyzer)
                removed = writing.remove(list(sql.rows_by_id(connection, wanted).values()))
                writing.finish()
                return removed

        return await self._run(self._writer, work) if wanted else 0

    async def get(self, ids: Iterable[str | int]) -> list[Hit]:
        """Return the documents of these ids in the order asked; unknown ids are left out."""
        wanted = ids_from(ids)

        def work() -> list[Hit]:
            with self._file.reading() as connection:
                rows = sql.rows_by_id(connection, wanted)
            return in_order(wanted, {id: self._document(row) for id, row in rows.items()})

        return await self._run(self._readers, work)

    async def vectors_of(self, ids: Iterable[str | int]) -> JsonObject:
        """Return id -> unit vector of the documents that have one."""
        wanted = ids_from(ids)

        def work() -> JsonObject:
            with self._file.reading() as connection:
                held = sql.vectors_by_id(connection, wanted)
            return {id: np.frombuffer(vector, dtype="<f4") for id, vector in held.items()}

        return await self._run(self._readers, work)

    async def ids(self, where: Where | None = None) -> list[str]:
        """Return the ids of all documents whose metadata passes `where`, sorted."""
        conditions(where)

        def work() -> list[str]:
            with self._file.reading() as connection:
                numbers = allowed_rows(connection, where)
                if numbers is None:
                    return sql.all_ids(connection)
                return sorted(sql.ids_by_number(connection, numbers).values())

        return await self._run(self._readers, work)

    async def explain_filter(self, where: Where) -> dict[str, str]:
        """Return key -> note for each test of a filter that no document passes."""

        def work() -> dict[str, str]:
            with self._file.reading() as connection:
                connection.execute("BEGIN")
                return filter_notes(connection, where)

        return await self._run(self._readers, work)

    async def count(self) -> int:
        """Return how many documents there are."""

        def work() -> int:
            with self._file.reading() as connection:
                facts = read_facts(connection)
                # Files of 0.1 keep no count.
                if facts.version == 1:
                    return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])
                return facts.documents

        return await self._run(self._readers, work)

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata passes `where`."""
        if self.mode == "text":
            return await self.search_text(query, k=k, where=where, source=self.name)
        if self.mode == "vector":
            assert self.embedder is not None  # noqa: S101 - resolve_mode refuses this mode without one
            return await self.search_vectors(
                query, embedder=self.embedder, k=k, where=where, source=self.name
            )
        # A hit that both sides have below k may be the best of both together.
        depth = max(k, DEPTH) if k else 0
        sides = await asyncio.gather(
            self.text.search(query, k=depth, where=where), self.vectors.search(query, k=depth, where=where)
        )
        return fuse_views(sides, k=k, source=self.name)

    async def search_lazy(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Search, but load text and metadata of a hit when they are first used; for words alone so far."""
        if self.mode == "text":
            return await self.search_text(query, k=k, where=where, source=self.name, lazy=True)
        return await self.search(query, k=k, where=where)

    async def search_text(
        self, query: str, *, k: int, where: Where | None, source: str, lazy: bool = False
    ) -> list[Hit]:
        """Search by words: BM25 over the FTS5 index."""
        if nothing_to_find(query, k, where):
            return []
        work = partial(self._searcher.by_words, query, k=k, where=where, source=source, lazy=lazy)
        return await self._run(self._readers, work)

    async def search_vectors(
        self,
        query: str,
        *,
        embedder: Embedder,
        k: int,
        where: Where | None,
        source: str,
        lazy: bool = False,
    ) -> list[Hit]:
        """Search by meaning: cosine to the query's vector."""
        if nothing_to_find(query, k, where):
            return []
        asked = (await unit_vectors(embedder, [query], kind="query", store=self.name))[0]
        owner = Owner(self.path, self.name, identity_of(embedder))
        work = partial(
            self._searcher.by_vector, asked, k=k, where=where, source=source, owner=owner, lazy=lazy
        )
        return await self._run(self._readers, work)

    async def sources(self) -> Mapping[str, str]:
        """Return path -> digest of every file that was indexed to its end."""

        def work() -> Mapping[str, str]:
            with self._file.reading() as connection:
                return dict(connection.execute("SELECT path, digest FROM sources"))

        return await self._run(self._readers, work)

    async def mark_sources(self, digests: Mapping[str, str | None]) -> None:
        """Remember which files are indexed to their end (path -> digest), or with None forget them."""
        held = [(path, digest) for path, digest in digests.items() if digest is not None]
        gone = [(path,) for path, digest in digests.items() if digest is None]

        def work() -> None:
            with self._file.writing() as connection:
                connection.executemany("DELETE FROM sources WHERE path = ?", gone)
                connection.executemany("INSERT OR REPLACE INTO sources VALUES (?, ?)", held)

        if digests:
            await self._run(self._writer, work)

    async def upgrade(self) -> bool:
        """Bring the file to this version's tables and text analysis; say whether it had to be.

        It is one transaction. Documents, vectors and sources stay as they are; readers see the old file
        until it is done.
        """
        self._file.refuse_read_only()
        analyzer = Analyzer(self._analyzer.language)
        return await self._run(self._writer, lambda: upgrade_file(self._file, analyzer))

    async def optimise(self) -> str:
        """Merge the word index and the write-ahead log, make damaged bit codes anew; say what was done."""

        def work() -> str:
            with self._file.writing() as connection:
                damaged = rebuild_codes(connection)
                connection.execute("INSERT INTO terms (terms) VALUES ('optimize')")
            with self._file.reading() as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            codes = (
                f"{damaged} damaged blocks of bit codes made anew" if damaged else "bit codes are in order"
            )
            return f"word index merged; {codes}"

        return await self._run(self._writer, work)

    async def verify(self) -> list[str]:
        """Read the whole file and return what is wrong with it, in words without any text of documents."""

        def work() -> list[str]:
            with self._file.reading() as connection:
                connection.execute("BEGIN")
                return problems_in(connection)

        return await self._run(self._readers, work)

    async def recall(self, *, questions: int = 20, k: int = 10) -> float:
        """Return the share of the exact best k that the bit codes find, for some documents' own vectors."""
        return await self._run(self._readers, lambda: self._searcher.recall(questions, k))

    async def close(self) -> None:
        """Finish running work and close the file."""
        await asyncio.to_thread(self.release)

    def release(self) -> None:
        """Do what `close` does, without async: waits for running work."""
        self._writer.close(wait=True)
        self._readers.close(wait=True)
        self._file.close()

    def _known(self, given: Sequence[Hit]) -> dict[str, sql.Row]:
        with self._file.reading() as connection:
            return sql.rows_by_id(connection, [hit.id for hit in given])

    def _write(self, batch: Batch) -> list[Hit]:
        with self._file.writing() as connection:
            return write_batch(connection, batch, self._owner, self._analyzer)

    def _document(self, row: sql.Row) -> Hit:
        return Hit(row.id, row.text, source=self.name, metadata=row.decoded())

    def _checked_analyzer(self, language: str | None) -> Analyzer:
        """Return the file's analysis; raises StoreError for a file that does not fit what was asked for."""
        try:
            facts = self.facts()
            self._owner.check(facts)
            if self.embedder is not None and not facts.dimension:
                self._owner.refuse_wordy(self._file)
            if facts.version == 1:
                return Analyzer(language or "auto")
            if language not in (None, facts.language):
                raise InputError(
                    f"{self.path} was made with language {facts.language!r}, not {language!r}. "
                    "Leave language out, or index again into a new file."
                )
            return Analyzer(facts.language)
        except BaseException:
            self._file.close()
            raise

    async def _run(self, workers: Workers, work: Callable[[], T]) -> T:
        self._file.refuse_closed()
        try:
            return await workers.run(partial(_repeated, work))
        except UnicodeEncodeError:
            pass  # and not as the cause of what follows: it holds the text
        raise InputError("A text holds half a character (a lone surrogate); clean it and try again.")


def _repeated(work: Callable[[], T]) -> T:
    """Do the work, again where the file was replaced meanwhile."""
    for _ in range(_TRIES - 1):
        try:
            return work()
        except FileChanged:
            continue
    return work()
