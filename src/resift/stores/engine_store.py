"""Shared parts of the stores on other engines: stored records, filter tags, and the search itself.

Ids, metadata keys and values reach an engine only as hashes or JSON text. Nothing in them can be read as
syntax, and every engine filters by the same equality (`filters.canonical_text`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

from resift._internal.arrays import Array, Vector, np
from resift.errors import InputError, ResiftError, StoreError
from resift.external.candidates import Candidate
from resift.models.embedder import NO_EMBEDDER, EmbedderOptions, embedding_models
from resift.models.registry import pin_advice
from resift.protocols import Embedder
from resift.stores import base
from resift.stores.filters import (
    Condition,
    Pattern,
    Test,
    Value,
    canonical_text,
    filter_values,
    parse_filter,
    passes_all,
)
from resift.text import Analyzer
from resift.types import Hit, Metadata, Where, to_json
from resift.validation import check_choice, option

T = TypeVar("T")

TAGS_VERSION = "2"
"""Version of the tags in a table; version 1 (Resift 0.2) has none for the items of lists."""

_EXTRA_ROWS = 32  # fetched beyond k, because engines break ties differently; here they are broken by id
_SCORE_TOLERANCE = 1e-5  # engines sum float32 in any order, so closer scores may be equal
_MAX_VALUE_LENGTH = 80


@dataclass(frozen=True, kw_only=True)
class SearchOptions(EmbedderOptions):
    """Search options that several stores share."""

    embedder: str | None = option(
        "Model that embeds the query: a model's id, or `none` to search by keywords only.",
        default=None,
        choices=lambda: [NO_EMBEDDER, *embedding_models()],
        advice=pin_advice,
    )
    mode: base.Mode | None = option("Search by keywords, by vectors, or by both.", default=None)
    exact: bool | None = option("Compare every vector, even if an index would be faster.", default=None)


# Records


class Record(NamedTuple):
    """One document as an engine stores it; `document` is ASCII JSON of the whole document."""

    key: str
    document: str
    tags: list[str]
    terms: list[str]
    vector: Any

    @classmethod
    def from_hit(cls, hit: Hit, terms: list[str], vector: Array | None) -> Record:
        """Return the record of a document, its index terms and its vector (None without an embedder)."""
        # Encoded twice: first dates become text, then lone surrogates become escapes that any engine accepts.
        plain = json.loads(to_json({"id": hit.id, "text": hit.text, "metadata": dict(hit.metadata)}))
        return cls(hash_id(hit.id), json.dumps(plain), make_tags(hit.metadata), terms, vector)


class EngineRow(NamedTuple):
    """One row found by an engine: document, score, and the vector if requested."""

    document: str
    score: float
    vector: Any = None


async def make_records(
    documents: Iterable[Candidate], embedder: Embedder | None, analyzer: Analyzer | None, *, store: str
) -> list[Record]:
    """Return the records to store, embedded in one call."""
    hits = base.read_documents(documents)
    terms = [[] if analyzer is None else analyzer.terms(hit.text) for hit in hits]
    vectors: Iterable[Array | None] = [None] * len(hits)
    if embedder is not None and hits:
        vectors = await base.embed_texts(embedder, [hit.text for hit in hits], kind="document", store=store)
    return [Record.from_hit(*parts) for parts in zip(hits, terms, vectors, strict=True)]


def hash_id(id: str) -> str:
    """Return the key of a document in an engine."""
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()


def read_record(document: str, *, source: str) -> Hit:
    """Return a stored document as a hit without a score."""
    fields = json.loads(document)
    return Hit(fields["id"], fields["text"], source=source, metadata=fields["metadata"])


# Filter tags


def make_tags(metadata: Metadata) -> list[str]:
    """Return one tag per value that can be filtered on; each item of a list has its own."""
    return sorted({_make_tag(key, item) for key, value in metadata.items() for item in filter_values(value)})


def _make_tag(key: str, value: Value) -> str:
    text = canonical_text(value)
    if len(text) > _MAX_VALUE_LENGTH:
        text = "#" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return hashlib.sha256(json.dumps([key, text]).encode("ascii")).hexdigest()[:32]


class EngineFilter(NamedTuple):
    """A filter in two parts: groups of tags for the engine, and tests of the rows that it returns.

    A row must have a tag of every group. Nothing passes an empty group.
    """

    groups: list[list[str]]
    tests: list[Test]

    @classmethod
    def parse(cls, where: Where | None) -> EngineFilter:
        """Return the two parts of a filter."""
        groups: list[list[str]] = []
        tests: list[Test] = []
        for test in parse_filter(where):
            if isinstance(test, Condition) and test.operator == "=":
                plain = [value for value in test.values if not isinstance(value, Pattern)]
                if len(plain) == len(test.values):
                    groups.append(sorted({_make_tag(test.key, value) for value in plain}))
                    continue
            tests.append(test)
        return cls(groups, tests)


# Search


async def fetch_rows(
    fetch: Callable[[int], Awaitable[list[EngineRow]]], k: int, tests: Sequence[Test] = ()
) -> list[EngineRow]:
    """Fetch until k rows pass the tests and no further row can tie with the last of them."""
    limit = k + _EXTRA_ROWS
    while True:
        rows = await fetch(limit)
        passing = rows
        if tests:
            passing = [row for row in rows if passes_all(json.loads(row.document)["metadata"], tests)]
        complete = len(passing) >= k and passing[k - 1].score - rows[-1].score > _SCORE_TOLERANCE
        if len(rows) < limit or complete:
            return passing
        # Four times as many: selective tests would otherwise query the engine again and again.
        limit *= 4


class EngineStore:
    """The part of a store that does not depend on its engine.

    Subclasses find the nearest vectors and the rows that contain terms. If an approximate index returns too
    few rows that pass the filter, the search is repeated without it.
    """

    indexes: ClassVar[tuple[str, ...]] = ("",)
    """The kinds of vector index that `optimize` can build."""
    stores_terms: ClassVar[bool] = True
    """Whether the engine stores the terms of a text for keyword search."""

    def __init__(
        self,
        name: str,
        embedder: Embedder | None,
        mode: base.Mode | None,
        *,
        language: str | None = None,
        exact: bool = False,
        threads: int,
        index: str = "",
    ) -> None:
        self.name = name
        self.index = check_choice(index, self.indexes, f"index of {name}")
        self.embedder = embedder
        self.mode: base.Mode = base.resolve_mode(mode, embedder, default="vector")
        self.exact = exact
        self._language = language
        self._embedder_name = "" if embedder is None else base.embedder_name(embedder)
        self._workers = base.Workers(name, threads=threads)
        Analyzer(language or "auto")  # raises InputError for an unknown language

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those with the same id; return the number of documents given."""
        analyzer = await self._load_analyzer() if self.stores_terms else None
        records = await make_records(documents, self.embedder, analyzer, store=self.name)
        if records:
            await self._write(records)
        return len(records)

    async def delete(self, ids: Iterable[str | int]) -> int:
        """Remove documents; return how many existed."""
        return await self._delete([hash_id(id) for id in base.read_ids(ids)])

    async def get(self, ids: Iterable[str | int]) -> list[Hit]:
        """Return the documents in the order of the ids; unknown ids are skipped."""
        distinct = base.read_ids(ids)
        documents = await self._fetch_documents([hash_id(id) for id in distinct])
        hits = [read_record(document, source=self.name) for document in documents]
        return base.select_by_ids(distinct, {hit.id: hit for hit in hits})

    async def get_vectors(self, ids: Iterable[str | int]) -> Mapping[str, Vector]:
        """Return id -> unit vector of the documents that have one."""
        if self.embedder is None:
            return {}
        by_key = {hash_id(id): id for id in base.read_ids(ids)}
        return {by_key[key]: vector for key, vector in await self._fetch_vectors(list(by_key))}

    vectors_of = base.deprecated_name("vectors_of", get_vectors)

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits whose metadata passes `where`, best first."""
        filter = EngineFilter.parse(where)
        if base.is_empty_search(query, k) or not all(filter.groups) or not await self._exists():
            return []
        if filter.groups and not await self._tags_lists():
            filter = EngineFilter([], parse_filter(where))
        if self.mode == "text":
            return await self._search_text(query, filter, k, self.name)
        if self.mode == "vector":
            return await self._search_vectors(query, filter, k, self.name)
        depth = max(k, base.HYBRID_DEPTH)
        text = await self._search_text(query, filter, depth, f"{self.name}.text")
        vectors = await self._search_vectors(query, filter, depth, f"{self.name}.vectors")
        return base.fuse_views([text, vectors], k=k, source=self.name)

    async def _search_vectors(self, query: str, filter: EngineFilter, k: int, source: str) -> list[Hit]:
        assert self.embedder is not None  # noqa: S101 - base.resolve_mode refuses vector mode without one
        vector = (await base.embed_texts(self.embedder, [query], kind="query", store=self.name))[0]
        approximate = not self.exact and await self._has_index()

        async def fetch(limit: int) -> list[EngineRow]:
            return await self._fetch_nearest(vector, filter.groups, limit, exact=not approximate)

        rows = await fetch_rows(fetch, k, filter.tests)
        if approximate and len(rows) < k:
            approximate = False
            rows = await fetch_rows(fetch, k, filter.tests)
        # Engines sum float32 in their own order. Summing again in float64 makes scores independent of it.
        query_vector = vector.astype(np.float64)
        stored = (np.asarray(row.vector, dtype=np.float32).astype(np.float64) for row in rows)
        scores = [float(row_vector @ query_vector) for row_vector in stored]
        hits = base.top_k(map(_make_match, rows, scores), k=k, source=source)
        return base.SearchHits(hits, approximate=approximate)

    async def _search_text(self, query: str, filter: EngineFilter, k: int, source: str) -> list[Hit]:
        terms = list(dict.fromkeys((await self._load_analyzer()).query_terms(query)))
        if not terms:
            return []
        rows = await fetch_rows(
            lambda limit: self._fetch_matching(terms, filter.groups, limit), k, filter.tests
        )
        return base.top_k((_make_match(row, row.score) for row in rows), k=k, source=source)

    async def _load_analyzer(self) -> Analyzer:
        """Return the analyzer of the table's terms; for a new table, that of the chosen language."""
        stored = await self._table_language()
        if stored is None:
            return Analyzer(self._language or "auto")
        if self._language not in (None, stored):
            raise InputError(
                f"The table of {self.name!r} was made with language {stored!r}, not {self._language!r}. "
                "Leave language out, or use another table."
            )
        return Analyzer(stored)

    async def _work(self, job: Callable[[], T]) -> T:
        """Run blocking work in a worker thread; errors of the engine become StoreError."""
        try:
            return await self._workers.run(job)
        except (ResiftError, asyncio.CancelledError):
            raise
        except Exception as exc:
            raise self._explain(exc) from exc

    async def _write(self, records: Sequence[Record]) -> None:
        """Create the table if needed, and add or replace these records."""
        raise NotImplementedError

    async def _delete(self, keys: list[str]) -> int:
        """Delete the records with these keys; return how many existed."""
        raise NotImplementedError

    async def _fetch_documents(self, keys: list[str]) -> list[str]:
        """Return the stored documents with these keys, in any order."""
        raise NotImplementedError

    async def _fetch_vectors(self, keys: list[str]) -> list[tuple[str, Vector]]:
        """Return key and vector of the records that have one."""
        raise NotImplementedError

    async def _exists(self) -> bool:
        """Return whether there is a table to search."""
        raise NotImplementedError

    async def _table_language(self) -> str | None:
        """Return the language of the table's terms, or None if there is no table."""
        return None

    async def _tags_lists(self) -> bool:
        """Return whether the tags include items of lists; tables of Resift 0.2 have none."""
        raise NotImplementedError

    async def _has_index(self) -> bool:
        """Return whether an approximate index of the vectors exists."""
        return False

    async def _fetch_nearest(
        self, query: Array, groups: list[list[str]], limit: int, *, exact: bool
    ) -> list[EngineRow]:
        """Return the nearest rows that have a tag of every group, best first."""
        raise NotImplementedError

    async def _fetch_matching(self, terms: list[str], groups: list[list[str]], limit: int) -> list[EngineRow]:
        """Return the rows that contain any term and have a tag of every group, best first."""
        raise NotImplementedError

    def _check_table(self, table: str, present: Iterable[str], needed: Iterable[str]) -> None:
        """Raise StoreError for a table that Resift did not create."""
        columns = set(present)
        missing = [name for name in needed if name not in columns]
        if missing:
            raise StoreError(
                f"{table!r} of store {self.name!r} was not created by Resift: it has no "
                f"{', '.join(missing)}. Name another table, or search this one as it is with an "
                "ExternalStore (docs/guides/connect/other-systems.md).",
                store=self.name,
            )

    def _check_embedder(self, stored: str) -> None:
        """Raise StoreError if a table has the vectors of another embedder."""
        if stored != self._embedder_name:
            current = self._embedder_name or "no embedder"
            raise StoreError(
                f"{self.name!r} has vectors of {stored or 'no embedder'!r}, not of {current!r}; "
                "their distances cannot be compared. Use that embedder, or another table.",
                store=self.name,
            )

    def _explain(self, exc: Exception) -> StoreError:
        """Return the error to raise for one of the engine's, whose message may quote documents."""
        return StoreError(f"Store {self.name!r} failed: {type(exc).__name__}.", store=self.name)


def _make_match(row: EngineRow, score: float) -> base.Match:
    fields = json.loads(row.document)
    return base.Match(fields["id"], fields["text"], score, fields["metadata"])
