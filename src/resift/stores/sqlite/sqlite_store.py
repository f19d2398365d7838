"""SQLiteStore, the embedded default store. One file contains documents, a keyword index and vectors."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from weakref import WeakSet

from resift._internal.arrays import Array
from resift._internal.forking import after_fork
from resift.errors import InputError, StoreError
from resift.external.candidates import Candidate
from resift.models.embedder import NO_EMBEDDER, embedding_models
from resift.models.embedder import Embedder as LocalEmbedder
from resift.models.registry import pin_advice
from resift.protocols import Embedder
from resift.ranking.context import find_place, sort_chunks
from resift.stores import base
from resift.stores.backend import SearchOptions
from resift.stores.base import Mode, SearchHits, StoreView
from resift.stores.filters import Test, parse_filter, passes_all
from resift.stores.sqlite import database, writer
from resift.stores.sqlite import rows as stored_rows
from resift.stores.sqlite.database import Connection, DatabaseFile, FileMetadata, FileReplacedError, IndexCorruptedError
from resift.stores.sqlite.lexical_index import LexicalView
from resift.stores.sqlite.rows import LazyDocuments, RowList, RowListCache
from resift.stores.sqlite.vector_index import VectorView, load_vectors, measure_recall
from resift.text import Analyzer
from resift.text.analysis import BM25
from resift.types import Hit, JsonObject, Where
from resift.types.hit import lazy_hits, load_now
from resift.validation import check_arguments, check_path, option

T = TypeVar("T")

AUTO = "auto"  # option value that selects the embedder that the file was built with

_BATCH = 512  # documents per embedding call and transaction
_TEXT_BATCH = 2048  # documents per transaction without an embedder
_READERS = 4
_SMALL = 20_000  # documents; searching no more than this is mostly Python, which runs on one core at a time
_FIRST_TEXTS = 32  # hits of a lazy search whose texts are read together with the ids
_ATTEMPTS = 5  # attempts to read a file that other processes replace


@dataclass(frozen=True, kw_only=True)
class SQLiteOptions(SearchOptions):
    """Options of an index file in a pipeline file."""

    path: str = option("The index file. Create one with: resift index PATH", kind="path", must_exist=True)
    embedder: str | None = option(
        "Model that embeds the query; `auto` uses the one that the file was built with, "
        "`none` searches by keywords only.",
        default=AUTO,
        choices=lambda: [AUTO, NO_EMBEDDER, *embedding_models()],
        advice=pin_advice,
    )
    read_only: bool = option("Open the file read-only.", default=False)

    def arguments(self) -> JsonObject:
        """Return the arguments of the store; `auto` is replaced by the embedder of the file."""
        if self.embedder != AUTO:
            return super().arguments()
        store = SQLiteStore(self.path, read_only=True)
        try:
            file = store.metadata()
        finally:
            store.release()
        return replace(self, embedder=file.embedder if file.dimension else NO_EMBEDDER).arguments()


class SQLiteStore(base.HybridStore):
    """Documents in one SQLite file, searched by BM25, by cosine, or by both (RRF 60).

    `add` and `delete` return after the commit has reached the disk. Several processes may read while one
    writes. A missing file is an error unless `create` is set. Without an embedder the mode is "text"; with one
    the default is "hybrid". `language` and the embedder are fixed when the file is created. Large files are
    searched by bit codes, marked `approximate`; `exact=True` compares all vectors; `exact=False` never does.
    """

    Options = SQLiteOptions
    lazy_views = True

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
        self.name, self.embedder, self.exact = name, embedder, exact
        self.path = check_path(path, "The index file")
        self.mode: Mode = base.resolve_mode(mode, embedder, default="hybrid")
        model = BM25(k1, b).validate()
        analyzer = Analyzer(language or "auto")
        facts = database.initial_metadata(analyzer.language, analyzer.version) if create else None
        self._file = DatabaseFile(path, name=name, facts=facts, read_only=read_only)
        # SQLite allows one writer at a time. With a single thread, writes queue instead of waiting for the lock.
        self._writer = base.Workers(f"{name}-write", threads=1)
        self._readers = base.Workers(f"{name}-read", threads=_READERS)
        # Several threads that all run Python code would only delay each other and the event loop.
        self._searcher = base.Workers(f"{name}-search", threads=1)
        self._user = self._file_user(embedder)
        try:
            file = self.metadata()
            self._user.check_embedder(file)
            if embedder is not None and not file.dimension and file.documents:
                problem = "was built without an embedder. Open it without one, or index again into a new file."
                raise StoreError(f"{self.path} {problem}", store=name)
            if language not in (None, file.language):
                raise InputError(
                    f"{self.path} was created with language {file.language!r}, not {language!r}. "
                    "Omit language, or index again into a new file."
                )
        except BaseException:
            self._file.close()
            raise
        self._analyzer, self._model = Analyzer(file.language), model
        self._is_small = file.documents <= _SMALL
        self._lock = threading.Lock()
        after_fork(self)
        self._rows = RowListCache()
        self._lexical: LexicalView | None = None
        self._vectors: VectorView | None = None
        self._unread: WeakSet[LazyDocuments] = WeakSet()

    @property
    def uses_local_cores(self) -> bool:
        """Whether searches only compute on this machine: with an embedder elsewhere, they mostly wait."""
        return self.embedder is None or isinstance(self.embedder, LocalEmbedder)

    def with_embedder(self, embedder: Embedder) -> StoreView:
        """Return a store that searches the same documents by vectors with this embedder."""
        self._file_user(embedder).check_embedder(self.metadata())
        return StoreView(self, "vectors", partial(self.search_side, "vectors", embedder=embedder), lazy=True)

    def use_embedder(self, embedder: Embedder) -> None:
        """Switch to hybrid mode with the embedder that the file was built with."""
        user = self._file_user(embedder)
        user.check_embedder(self.metadata())
        self.embedder, self.mode, self._user = embedder, "hybrid", user

    def _file_user(self, embedder: Embedder | None) -> writer.FileUser:
        return writer.FileUser(self.path, self.name, None if embedder is None else base.embedder_name(embedder))

    def metadata(self) -> FileMetadata:
        """Return the metadata of the file: version, generation, embedder, languages, size."""
        with self._file.reading() as connection:
            return database.read_metadata(connection)

    # Writing

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store or replace the documents; return their number. Only changed texts are embedded."""
        self._file.require_writable()
        hits = base.read_documents(documents)
        size = _TEXT_BATCH if self.embedder is None else _BATCH
        prepared = (await self.prepare(hits[start : start + size]) for start in range(0, len(hits), size))
        # The next batch is analyzed and embedded while this one is written.
        async with aclosing(base.read_ahead(prepared, depth=1)) as batches:
            async for batch in batches:
                await self.write(batch)
        return len(hits)

    async def prepare(self, documents: Iterable[Candidate]) -> writer.Batch:
        """Analyze changed documents and embed changed texts; `add` does this before it writes."""
        self._file.require_writable()
        hits = base.read_documents(documents)
        ids = [hit.id for hit in hits]
        stored = await self._read(lambda connection: stored_rows.read_rows_by_id(connection, ids))
        # Only the text is embedded, so a document whose metadata changed keeps its vector.
        texts = {hit.id: hit.text for hit in hits if hit.id not in stored or stored[hit.id].text != hit.text}
        changed = [hit for hit in hits if hit.id in texts or stored[hit.id].metadata != writer.encode_metadata(hit)]
        vectors: dict[str, bytes] = {}
        if self.embedder is not None and texts:
            matrix = await base.embed_texts(self.embedder, [*texts.values()], kind="document", store=self.name)
            vectors = {id: row.astype("<f4").tobytes() for id, row in zip(texts, matrix, strict=True)}
        analyze = self._analyzer.analyze
        analyses = await self._run(self._readers, lambda: {hit.id: analyze(hit.text) for hit in changed})
        return writer.Batch(changed, analyses, vectors)

    async def write(self, batch: writer.Batch) -> None:
        """Store a prepared batch in one transaction."""
        while batch.hits:
            work = partial(writer.write_batch, batch=batch, user=self._user, analyzer=self._analyzer)
            # Another process may have changed some documents since they were compared; prepare those again.
            batch = await self.prepare(await self._write(work))

    async def delete(self, ids: Iterable[str | int]) -> int:
        """Remove documents; return how many existed."""
        self._file.require_writable()
        distinct = base.read_ids(ids)
        work = partial(writer.delete_documents, ids=distinct, analyzer=self._analyzer)
        return await self._write(work) if distinct else 0

    async def mark_sources(self, digests: Mapping[str, str | None]) -> None:
        """Record which files are completely indexed (path -> digest); None removes a file."""
        indexed = [(path, digest) for path, digest in digests.items() if digest is not None]
        removed = [(path,) for path, digest in digests.items() if digest is None]

        def work(connection: Connection) -> None:
            connection.executemany("DELETE FROM sources WHERE path = ?", removed)
            connection.executemany("INSERT OR REPLACE INTO sources VALUES (?, ?)", indexed)

        if digests:
            await self._write(work)

    # Reading

    async def get(self, ids: Iterable[str | int]) -> list[Hit]:
        """Return the documents in the order of the ids; unknown ids are skipped."""
        distinct = base.read_ids(ids)

        def work(connection: Connection) -> list[Hit]:
            hits = {
                id: Hit(id, row.text, source=self.name, metadata=row.decode_metadata())
                for id, row in stored_rows.read_rows_by_id(connection, distinct).items()
            }
            return base.select_by_ids(distinct, hits)

        return await self._read(work)

    async def get_vectors(self, ids: Iterable[str | int]) -> Mapping[str, Array]:
        """Return id -> unit vector for the documents that have one."""
        distinct = list(dict.fromkeys(map(str, ids)))
        return await self._read(partial(stored_rows.read_vectors_by_id, ids=distinct))

    async def ids(self, where: Where | None = None) -> list[str]:
        """Return the sorted ids of all documents whose metadata passes `where`."""
        tests = parse_filter(where)

        def work(connection: Connection) -> list[str]:
            numbers = stored_rows.find_rows(connection, tests)
            if numbers is None:
                return stored_rows.read_all_ids(connection)
            return sorted(stored_rows.read_ids(connection, numbers).values())

        return await self._read(work)

    async def get_chunks(self, hit: Hit, *, before: int, after: int) -> list[Hit]:
        """Return the hit and the chunks around it, in document order."""
        place = find_place(hit.metadata)
        if place is None:
            return []
        first, last = place.position - before, place.position + after
        where = {place.document_field: {"=": place.document}, place.position_field: {">=": first, "<=": last}}
        chunks = await self.get(await self.ids(where))
        return sort_chunks(hit, chunks, before=before, after=after)

    async def explain_filter(self, where: Where) -> dict[str, str]:
        """Return key -> note for each condition of a filter that no document passes."""
        return await self._read(partial(stored_rows.explain_stored_filter, where=where))

    async def count(self) -> int:
        """Return the number of documents."""
        return (await self._read(database.read_metadata)).documents

    async def sources(self) -> Mapping[str, str]:
        """Return path -> digest for every completely indexed file."""
        return await self._read(lambda connection: dict(connection.execute("SELECT path, digest FROM sources")))

    # Search

    async def search_lazy(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Search; in text mode, hits decode their text and metadata on first use."""
        if self.mode == "text":
            return await self.search_side("text", query, k=k, where=where, source=self.name, lazy=True)
        return await self.search(query, k=k, where=where)

    async def search_side(
        self,
        side: base.Side,
        query: str,
        *,
        k: int,
        where: Where | None,
        source: str,
        lazy: bool = False,
        embedder: Embedder | None = None,
    ) -> list[Hit]:
        """Search by keywords (BM25) or by cosine; `lazy` hits decode their text and metadata on first use."""
        if not lazy and base.is_empty_search(query, k, where):  # pipelines check the arguments of lazy searches
            return []
        tests = [] if where is None else parse_filter(where)
        vector, user = None, self._user
        if side == "vectors" and (embedder := embedder or self.embedder) is not None:
            vector = (await base.embed_texts(embedder, [query], kind="query", store=self.name))[0]
            if embedder is not self.embedder:
                user = self._file_user(embedder)

        def work(connection: Connection) -> list[Hit]:
            with self._lock:
                rows = self._rows.load(connection)
            self._is_small = rows.file.documents <= _SMALL
            allowed = stored_rows.find_rows(connection, tests) if tests else None
            if vector is None:
                words = self._analyzer.query_words(query, languages=rows.file.languages)
                with self._lock:
                    view = self._lexical
                    if view is None or view.rows is not rows:
                        view = self._lexical = LexicalView(rows, self._model)
                matches, approximate = view.search(connection, words, k, allowed), False
            else:
                if (user.embedder, len(vector)) != (rows.file.embedder, rows.file.dimension):
                    user.check_embedder(rows.file, dimension=len(vector))
                with self._lock:
                    vectors = self._vectors
                    if vectors is None or vectors.rows is not rows:
                        vectors = self._vectors = load_vectors(connection, rows, exact=self.exact, old=vectors)
                matches, approximate = vectors.search(connection, vector, k, allowed)
            if lazy and not tests:
                hits = self._lazy_hits(connection, rows, matches, k, source)
            else:
                hits = self._load_hits(connection, matches, k, tests, source)
            return SearchHits(hits, approximate=True) if approximate else hits

        return await self._read(work, self._searcher if self._is_small else None)

    def _lazy_hits(
        self, connection: Connection, rows: RowList, matches: list[tuple[int, float]], k: int, source: str
    ) -> list[Hit]:
        """Return the best k matches as hits with ids and scores; most texts are read on first use."""
        names = rows.read_ids(connection, [row for row, _ in matches])
        # Sort by score, then by id. A single sort of tuples would take three times as long as two sorts.
        best = sorted(range(len(names)), key=names.__getitem__)
        best.sort(key=[score for _, score in matches].__getitem__, reverse=True)
        best = best[:k]
        ids, numbers = [names[i] for i in best], [matches[i][0] for i in best]
        documents = LazyDocuments(self._file, ids, numbers)
        # Documents without terms may have no text at all.
        empty = [i for i, row in enumerate(numbers) if rows.has_empty and rows.lengths[rows.find_slot(row)] == 0]
        # Read the texts that the caller is most likely to use.
        documents.read(connection, {*ids[:_FIRST_TEXTS], *[ids[i] for i in empty]})
        hits = lazy_hits(ids, [matches[i][1] for i in best], documents, source=source)
        if empty:  # if a hit has no text, fusion takes the text from another list
            load_now([hits[i] for i in empty])
        with self._lock:
            self._unread.add(documents)
        return hits

    def reset_after_fork(self) -> None:
        """Replace the lock in a forked child, because another thread may have held it."""
        self._lock = threading.Lock()

    def _read_unread(self, connection: Connection) -> None:
        """Read the unread texts of hits that are still in use, before their documents change or disappear."""
        with self._lock:
            unread = list(self._unread)
            self._unread.clear()
        for documents in unread:
            with suppress(IndexCorruptedError):  # raised again when the text is used
                documents.read(connection)

    def _load_hits(
        self, connection: Connection, matches: list[tuple[int, float]], k: int, tests: Sequence[Test], source: str
    ) -> list[Hit]:
        """Return the best k matches as hits; `matches` may contain more that tie with the last one."""
        if len(matches) > 2 * k:  # with many ties, sort by id before reading any texts
            ids = stored_rows.read_ids(connection, [row for row, _ in matches])
            matches = sorted(matches, key=lambda match: (-match[1], ids[match[0]]))[:k]
        numbers = [row for row, _ in matches]
        rows = stored_rows.read_rows(connection, numbers)
        hits = []
        for number, score in matches:
            row = rows[number]
            metadata = row.decode_metadata()
            # According to the attributes, the document passes. If its metadata does not, one of the two is damaged.
            if tests and not passes_all(metadata, tests):
                raise IndexCorruptedError("attributes", number)
            hits.append(base.Match(row.id, row.text, score, metadata))
        return base.top_k(hits, k=k, source=source)

    # Maintenance

    async def upgrade(self) -> bool:
        """Convert the file to the current version and text analysis, in one transaction; return whether it changed."""
        self._file.require_writable()
        before = await self._read(database.read_metadata)
        if before.version < database.SCHEMA_VERSION:
            await self._write(lambda connection: None)  # any write converts the file and reanalyzes all texts
            return True
        if before.analyzer != self._analyzer.version:
            await self._write(partial(writer.reanalyze, analyzer=self._analyzer))
            return True
        return False

    async def optimize(self) -> str:
        """Merge the keyword index, rebuild damaged bit codes, truncate the write-ahead log; return a summary."""

        def truncate_log() -> None:
            with self._file.reading() as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        damaged = await self._write(writer.optimize)
        await self._run(self._writer, truncate_log)
        codes = f"{damaged} damaged blocks of bit codes rebuilt" if damaged else "bit codes are intact"
        return f"keyword index merged, {codes}"

    async def verify(self) -> list[str]:
        """Read the whole file and return its problems; they never quote documents."""
        return await self._read(writer.find_problems)

    async def recall(self, *, questions: int = 20, k: int = 10) -> float:
        """Return the share of the exact top k that bit codes find, with the vectors of some documents as queries."""
        return await self._read(partial(measure_recall, queries=questions, k=k))

    async def close(self) -> None:
        """Wait for running work, then close the file."""
        await asyncio.to_thread(self.release)

    def release(self) -> None:
        """Wait for running work, then close the file; needs no event loop."""
        for workers in (self._writer, self._readers, self._searcher):
            workers.close(wait=True)
        if self._unread:
            with suppress(StoreError), self._file.reading() as connection:
                self._read_unread(connection)
        self._file.close()

    vectors_of = base.deprecated_name("vectors_of", get_vectors)
    optimise = base.deprecated_name("optimise", optimize)

    async def _read(self, work: Callable[[Connection], T], workers: base.Workers | None = None) -> T:
        """Run work on one snapshot of the file, in a reader thread."""

        def read() -> T:
            with self._file.reading() as connection:
                connection.execute("BEGIN")
                return work(connection)

        return await self._run(workers or self._readers, read)

    async def _write(self, work: Callable[[Connection], T]) -> T:
        """Run work in one write transaction; a file of an older version is converted first."""

        def write() -> T:
            with self._file.writing(writer.convert_file) as connection:
                self._read_unread(connection)
                return work(connection)

        return await self._run(self._writer, write)

    async def _run(self, workers: base.Workers, work: Callable[[], T]) -> T:
        self._file.require_open()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await workers.run(work)
            except FileReplacedError:
                if attempt == _ATTEMPTS:
                    raise
            except UnicodeEncodeError:
                break  # raise the next error outside of this block, because this one contains the text
        raise InputError("A text contains half a character (a lone surrogate); clean it and try again.")
