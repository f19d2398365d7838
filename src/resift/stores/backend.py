"""Base classes of stores on external engines: search modes, over-fetching, ties, threads and error messages.

`BackendStore` searches any table. `EngineStore` also creates and fills its table. Its ids, metadata keys and
values reach the engine only as hashes or JSON text, so it cannot interpret them as syntax.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from operator import itemgetter
from typing import Any, ClassVar, Concatenate, NamedTuple, ParamSpec, TypeVar

from resift._internal.arrays import Array, Vector, np
from resift._internal.environment import require_variable
from resift.errors import InputError, ResiftError, StoreError
from resift.external.candidates import Candidate
from resift.models.embedder import NO_EMBEDDER, EmbedderOptions, embedding_models
from resift.models.registry import pin_advice
from resift.protocols import Embedder
from resift.stores import base, filters
from resift.stores.base import Mode, SearchHits, Side
from resift.stores.filters import Condition, Pattern, Test, Value
from resift.text import Analyzer
from resift.types import Hit, JsonMapping, JsonObject, JsonValue, Metadata, Where, to_json
from resift.validation import Options, check_text, option

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound="BackendStore")

TAGS_VERSION = "2"  # version of the tags in a table. Version 1 (Resift 0.2) has no tags for list items.
_MAX_VALUE_LENGTH = 80
_SCORE_TOLERANCE = 1e-5  # engines sum float32 in any order, so scores closer than this may be ties

Document = JsonMapping  # a stored document: its id, text and metadata


@dataclass(frozen=True, kw_only=True)
class ModeOptions(EmbedderOptions):
    """The embedder and the search mode of a store."""

    embedder: str | None = option(
        "Model that produced the vectors and embeds the query: a model id, or `none` to search by keywords only.",
        default=None,
        choices=lambda: [NO_EMBEDDER, *embedding_models()],
        advice=pin_advice,
    )
    mode: Mode | None = option("Search by keywords, by vectors, or by both.", default=None)


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ModeOptions):
    """Search options of the stores that Resift fills."""

    exact: bool | None = option("Compare every vector, even if an index would be faster.", default=None)


class ApiKeyOptions(Options):
    """Options with `api_key_env`, the environment variable that provides the store's `api_key`."""

    def arguments(self) -> JsonObject:
        """Return the arguments of the store, with the API key from its environment variable."""
        arguments = super().arguments()
        variable = arguments.pop("api_key_env", None)
        return arguments if variable is None else {**arguments, "api_key": require_variable(str(variable))}


class Row(NamedTuple):
    """A row returned by an engine, with its score if it has one."""

    values: JsonMapping
    score: float | None = None


def in_thread(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Run a blocking method of a store in one of the store's threads."""

    @wraps(method)
    async def run(store: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._work(partial(method, store, *args, **kwargs))

    return run


class BackendStore(base.HybridSearch):
    """The engine-independent part of a store. Subclasses fetch the best rows of a keyword or vector search."""

    engine: ClassVar[str] = "Store"  # name of this kind of store in error messages
    max_fetch: ClassVar[int] = sys.maxsize  # maximum number of rows to fetch in order to find k that pass the filter
    extra_rows: ClassVar[int] = 0
    """Number of rows to fetch beyond k. Engines break ties differently; Resift breaks them by id."""
    exact = False  # whether to compare every vector, even if there is an index
    vector_dimension = 0  # dimension of the stored vectors; 0 if unknown

    def __init__(self, name: str, embedder: Embedder | None, mode: Mode, *, threads: int) -> None:
        self.name = check_text(name, "name")
        self.embedder = embedder
        self.mode: Mode = mode
        self._workers = base.Workers(name, threads=threads)

    async def search_side(self, side: Side, query: str, *, k: int, where: Where | None, source: str) -> list[Hit]:
        """Search one side only: keywords or vectors."""
        if base.is_empty_search(query, k, where):
            return []
        tests = self._filter_tests(where)
        passes_none = any(isinstance(test, Condition) and test.operator == "=" and not test.values for test in tests)
        if passes_none or not await self._exists():
            return []
        if side == "text":
            return await self._search_text(query, tests, k, source)
        if self.embedder is None:
            return await self._collect(partial(self._fetch_by_query, query, tests), tests, k, source)
        vector = (await base.embed_texts(self.embedder, [query], kind="query", store=self.name))[0]
        if self.vector_dimension not in (0, len(vector)):
            raise self._error(
                f"The vectors of {self.name!r} have {self.vector_dimension} dimensions, and the embedder returns "
                f"{len(vector)}. Use the embedder that produced those vectors."
            )
        fetch = partial(self._fetch_nearest, vector, tests)
        if not self.exact and await self._has_vector_index():
            hits = await self._collect(partial(fetch, exact=False), tests, k, source)
            if len(hits) >= k:  # a filtered search of an approximate index may stop early
                hits.approximate = True
                return hits
        return await self._collect(partial(fetch, exact=True), tests, k, source)

    async def close(self) -> None:
        """Release connections and threads; the next call opens new ones if the engine allows it."""
        await self._workers.run(self._disconnect)
        self._workers.close()

    def release(self) -> None:
        """Release connections and threads without an event loop."""
        self._disconnect()
        self._workers.close()

    async def _search_text(self, query: str, tests: Sequence[Test], k: int, source: str) -> list[Hit]:
        return await self._collect(partial(self._fetch_text, query, tests), tests, k, source)

    async def _collect(
        self, fetch: Callable[[int], Awaitable[list[Row]]], tests: Sequence[Test], k: int, source: str
    ) -> SearchHits:
        """Fetch rows until k pass the tests and no further row can tie with the last one."""
        limit = k + self.extra_rows
        while True:
            rows = await fetch(limit)
            passing = [row for row in rows if self._passes(row, tests)] if tests else rows
            complete = len(rows) < limit
            if not complete and len(passing) >= k:
                margin = (passing[k - 1].score or 0.0) - (rows[-1].score or 0.0)
                complete = not self.extra_rows or margin > _SCORE_TOLERANCE
            if complete or limit >= self.max_fetch:
                break
            # Growing in smaller steps would take many queries if the tests are selective.
            limit = min(self.max_fetch, max(100, 4 * limit))
        hits = SearchHits(self._make_hits(passing, source)[:k], approximate=not complete)
        if not complete:
            hits.warning = (
                f"{self.name}: only {len(passing)} of the best {limit:,} rows pass the filter, and further "
                "rows were not read. Add a condition that the engine can test."
            )
        return hits

    def _make_hits(self, rows: Iterable[Row], source: str) -> list[Hit]:
        hits = [self._make_hit(row, source) for row in rows]
        if repeated := [id for id, count in Counter(hit.id for hit in hits).items() if count > 1]:
            raise self._error(
                f"Two rows of {self.name!r} have the id {repeated[0]!r}; set id= to a unique column or combination."
            )
        if all(hit.score is None for hit in hits):
            return hits  # without scores, keep the engine's order
        return sorted(hits, key=lambda hit: (hit.score is None, -(hit.score or 0.0), hit.id))

    async def _work(self, job: Callable[[], T], *, interrupt: Callable[[], None] | None = None) -> T:
        """Run blocking work in a thread; `interrupt` stops the engine if the caller is cancelled."""
        with self._explained():
            try:
                return await self._workers.run(job)
            except asyncio.CancelledError:
                if interrupt is not None:
                    interrupt()
                raise

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn engine errors into StoreError."""
        try:
            yield
        except ResiftError:
            raise
        except Exception as exc:
            raise self._explain(exc) from exc

    # Implemented by subclasses

    def _filter_tests(self, where: Where | None) -> list[Test]:
        return filters.parse_filter(where)

    async def _exists(self) -> bool:
        """Return whether there is a table to search."""
        return True

    async def _has_vector_index(self) -> bool:
        """Return whether the vectors have an approximate index that a search can bypass."""
        return False

    async def _fetch_text(self, query: str, tests: Sequence[Test], limit: int) -> list[Row]:
        """Return the best rows of a keyword search, best first; some may fail the tests."""
        raise NotImplementedError

    async def _fetch_nearest(self, vector: Array, tests: Sequence[Test], limit: int, *, exact: bool) -> list[Row]:
        """Return the nearest rows, nearest first; some may fail the tests."""
        raise NotImplementedError

    async def _fetch_by_query(self, query: str, tests: Sequence[Test], limit: int) -> list[Row]:
        """Return the nearest rows to a query that the engine embeds; some may fail the tests."""
        raise NotImplementedError

    def _passes(self, row: Row, tests: Sequence[Test]) -> bool:
        raise NotImplementedError

    def _make_hit(self, row: Row, source: str) -> Hit:
        raise NotImplementedError

    def _explain(self, exc: Exception) -> StoreError:
        """Return a StoreError for an engine error, without its message, which may quote documents."""
        return self._error(f"{self.engine} {self.name!r} failed: {type(exc).__name__}.")

    def _error(self, message: str, *, transient: bool = False) -> StoreError:
        return StoreError(message, store=self.name, transient=transient)

    def _disconnect(self) -> None:
        """Close connections that this store opened."""


# Tables that Resift creates


class Record(NamedTuple):
    """A document in the form that engines store; `document` is the whole document as ASCII JSON."""

    key: str
    document: str
    tags: list[str]
    terms: list[str]
    vector: JsonValue

    @classmethod
    def from_hit(cls, hit: Hit, terms: list[str], vector: Array | None) -> Record:
        """Return the record of a document, its index terms and its vector (None without an embedder)."""
        # Encode twice: first dates become text, then lone surrogates become escapes that any engine accepts.
        plain = json.loads(to_json({"id": hit.id, "text": hit.text, "metadata": dict(hit.metadata)}))
        return cls(hash_id(hit.id), json.dumps(plain), make_tags(hit.metadata), terms, vector)


def hash_id(id: str) -> str:
    """Return the key under which engines store a document: the SHA-256 of its id."""
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()


def make_tags(metadata: Metadata) -> list[str]:
    """Return one tag for each value that can be filtered on, including each item of a list."""
    return sorted({_make_tag(key, item) for key, value in metadata.items() for item in filters.filter_values(value)})


def _make_tag(key: str, value: Value) -> str:
    text = filters.canonical_text(value)
    if len(text) > _MAX_VALUE_LENGTH:
        text = "#" + hash_id(text)
    return hashlib.sha256(json.dumps([key, text]).encode("ascii")).hexdigest()[:32]


def tag_groups(tests: Iterable[Test]) -> list[list[str]]:
    """Return the part of a filter that engines can test: a row must have a tag from every group."""
    groups: list[list[str]] = []
    for test in tests:
        if isinstance(test, Condition) and test.operator == "=":
            plain = [value for value in test.values if not isinstance(value, Pattern)]
            if len(plain) == len(test.values):
                groups.append(sorted({_make_tag(test.key, value) for value in plain}))
    return groups


class TableNotes(NamedTuple):
    """Metadata stored with a table: the language of its terms and the version of its tags."""

    language: str
    tags: str


class EngineStore(BackendStore):
    """A store, on any engine, whose table Resift creates and fills."""

    extra_rows = 32
    stores_terms: ClassVar[bool] = True  # whether the engine stores the terms of each text for keyword search
    table_store: ClassVar[str] = ""  # name of the store class for tables created by other programs
    needed_columns: ClassVar[tuple[str, ...]] = ()  # columns that identify a table created by Resift

    def __init__(
        self,
        name: str,
        embedder: Embedder | None,
        mode: Mode | None,
        *,
        language: str | None = None,
        exact: bool = False,
        threads: int,
    ) -> None:
        super().__init__(name, embedder, base.resolve_mode(mode, embedder, default="vector"), threads=threads)
        self.exact = exact
        self._language = language
        self._embedder_name = "" if embedder is None else base.embedder_name(embedder)
        Analyzer(language or "auto")  # raises InputError for an unknown language

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those with the same id; return the number of documents passed."""
        hits = base.read_documents(documents)
        if not hits:
            return 0
        analyzer = await self._load_analyzer() if self.stores_terms else None
        terms = [[] if analyzer is None else analyzer.terms(hit.text) for hit in hits]
        vectors: Iterable[Array | None] = [None] * len(hits)
        if self.embedder is not None:
            texts = [hit.text for hit in hits]
            vectors = await base.embed_texts(self.embedder, texts, kind="document", store=self.name)
        await self._write([Record.from_hit(*parts) for parts in zip(hits, terms, vectors, strict=True)])
        return len(hits)

    async def delete(self, ids: Iterable[str | int]) -> int:
        """Remove documents; return how many existed."""
        return await self._delete([hash_id(id) for id in base.read_ids(ids)])

    async def get(self, ids: Iterable[str | int]) -> list[Hit]:
        """Return the documents in the order of the ids; unknown ids are skipped."""
        distinct = base.read_ids(ids)
        pairs = await self._fetch([hash_id(id) for id in distinct], vectors=False)
        hits = {document["id"]: self._make_hit(Row(document), self.name) for document, _ in pairs}
        return base.select_by_ids(distinct, hits)

    async def get_vectors(self, ids: Iterable[str | int]) -> Mapping[str, Vector]:
        """Return id -> unit vector for the documents that have one."""
        if self.embedder is None:
            return {}
        pairs = await self._fetch([hash_id(id) for id in base.read_ids(ids)], vectors=True)
        return {document["id"]: vector for document, vector in pairs}

    vectors_of = base.deprecated_name("vectors_of", get_vectors)

    async def _search_text(self, query: str, tests: Sequence[Test], k: int, source: str) -> list[Hit]:
        terms = list(dict.fromkeys((await self._load_analyzer()).query_terms(query)))
        if not terms:
            return []
        groups = await self._tag_groups(tests)
        return await self._collect(lambda limit: self._fetch_matching(terms, groups, limit), tests, k, source)

    async def _fetch_nearest(self, vector: Array, tests: Sequence[Test], limit: int, *, exact: bool) -> list[Row]:
        pairs = await self._fetch_near(vector, await self._tag_groups(tests), limit, exact=exact)
        # Engines sum float32 in different orders. Summing again in float64 makes scores independent of the order.
        wide = vector.astype(np.float64)
        scored = [(float(np.asarray(near, np.float32).astype(np.float64) @ wide), document) for document, near in pairs]
        return [Row(document, score) for score, document in sorted(scored, key=itemgetter(0), reverse=True)]

    async def _tag_groups(self, tests: Sequence[Test]) -> list[list[str]]:
        groups = tag_groups(tests)
        notes = await self._read_notes() if groups else None
        return [] if notes is None or notes.tags != TAGS_VERSION else groups

    async def _exists(self) -> bool:
        return await self._read_notes() is not None

    def _passes(self, row: Row, tests: Sequence[Test]) -> bool:
        return filters.passes_all(row.values["metadata"], tests)

    def _make_hit(self, row: Row, source: str) -> Hit:
        return Hit(row.values["id"], row.values["text"], row.score, source, row.values["metadata"])

    async def _load_analyzer(self) -> Analyzer:
        """Return the analyzer for the table's language, or for the chosen language if the table is new."""
        notes = await self._read_notes()
        if notes is None:
            return Analyzer(self._language or "auto")
        if self._language not in (None, notes.language):
            raise InputError(
                f"The table of {self.name!r} was created with language {notes.language!r}, not {self._language!r}. "
                "Omit language, or use another table."
            )
        return Analyzer(notes.language)

    def _check_table(self, table: str, columns: Iterable[str], embedder: str | None = None) -> None:
        """Raise StoreError if Resift did not create the table, or if its vectors come from another embedder."""
        present = set(columns)
        missing = [name for name in self.needed_columns if name not in present]
        if missing:
            raise self._error(
                f"{table!r} of store {self.name!r} was not created by Resift: it has no {', '.join(missing)}. Use "
                f"another table, or search this one as it is with {self.table_store}."
            )
        if embedder not in (None, self._embedder_name):
            current = self._embedder_name or "no embedder"
            raise self._error(
                f"{self.name!r} has vectors from {embedder or 'no embedder'!r}, not from {current!r}; "
                "their distances are not comparable. Use the embedder of the table, or another table."
            )

    # Implemented by subclasses

    async def _write(self, records: Sequence[Record]) -> None:
        """Create the table if needed, and add or replace these records."""
        raise NotImplementedError

    async def _delete(self, keys: list[str]) -> int:
        """Delete the records with these keys; return how many existed."""
        raise NotImplementedError

    async def _fetch(self, keys: list[str], *, vectors: bool) -> Iterable[tuple[Document, Vector]]:
        """Return the documents with these keys, and their vectors if requested, in any order."""
        raise NotImplementedError

    async def _read_notes(self) -> TableNotes | None:
        """Return the metadata stored with the table, or None if there is no table."""
        raise NotImplementedError

    async def _fetch_near(
        self, query: Array, groups: list[list[str]], limit: int, *, exact: bool
    ) -> Iterable[tuple[Document, Vector]]:
        """Return the documents and vectors of the nearest rows that have a tag from every group."""
        raise NotImplementedError

    async def _fetch_matching(self, terms: list[str], groups: list[list[str]], limit: int) -> list[Row]:
        """Return the rows that contain any of the terms and have a tag from every group, best first."""
        raise NotImplementedError
