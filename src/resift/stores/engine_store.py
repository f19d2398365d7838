"""Stores that create their own tables on another engine: records, filter tags, vectors.

Ids, metadata keys and values reach an engine only as hashes or JSON text. Nothing in them can be read as
syntax, and every engine filters by the same equality (`filters.canonical_text`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from resift._internal.arrays import Array, Vector, np
from resift.errors import InputError, StoreError
from resift.external.candidates import Candidate
from resift.protocols import Embedder
from resift.stores import base
from resift.stores.backend import BackendStore, Row
from resift.stores.filters import (
    Condition,
    Pattern,
    Test,
    Value,
    canonical_text,
    filter_values,
    passes_all,
)
from resift.text import Analyzer
from resift.types import Hit, JsonMapping, JsonValue, Metadata, to_json
from resift.validation import check_choice

TAGS_VERSION = "2"
"""Version of the tags in a table; version 1 (Resift 0.2) has none for the items of lists."""

_MAX_VALUE_LENGTH = 80

Document = JsonMapping
"""A stored document: its id, text and metadata."""


class Record(NamedTuple):
    """One document as an engine stores it; `document` is ASCII JSON of the whole document."""

    key: str
    document: str
    tags: list[str]
    terms: list[str]
    vector: JsonValue

    @classmethod
    def from_hit(cls, hit: Hit, terms: list[str], vector: Array | None) -> Record:
        """Return the record of a document, its index terms and its vector (None without an embedder)."""
        # Encoded twice: first dates become text, then lone surrogates become escapes that any engine accepts.
        plain = json.loads(to_json({"id": hit.id, "text": hit.text, "metadata": dict(hit.metadata)}))
        return cls(hash_id(hit.id), json.dumps(plain), make_tags(hit.metadata), terms, vector)


def hash_id(id: str) -> str:
    """Return the key of a document in an engine."""
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()


# Filter tags


def make_tags(metadata: Metadata) -> list[str]:
    """Return one tag per value that can be filtered on; each item of a list has its own."""
    return sorted({_make_tag(key, item) for key, value in metadata.items() for item in filter_values(value)})


def _make_tag(key: str, value: Value) -> str:
    text = canonical_text(value)
    if len(text) > _MAX_VALUE_LENGTH:
        text = "#" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return hashlib.sha256(json.dumps([key, text]).encode("ascii")).hexdigest()[:32]


def tag_groups(tests: Iterable[Test]) -> list[list[str]]:
    """Return the part of a filter that an engine tests: a row must have a tag of every group."""
    groups: list[list[str]] = []
    for test in tests:
        if isinstance(test, Condition) and test.operator == "=":
            plain = [value for value in test.values if not isinstance(value, Pattern)]
            if len(plain) == len(test.values):
                groups.append(sorted({_make_tag(test.key, value) for value in plain}))
    return groups


def cosine_rows(found: Iterable[tuple[Document, Vector]], query: Array) -> list[Row]:
    """Return (document, vector) pairs as rows with their cosine, best first.

    Engines sum float32 in their own order. Summing again in float64 makes scores independent of it.
    """
    wide = query.astype(np.float64)
    rows = [
        Row(document, float(np.asarray(vector, dtype=np.float32).astype(np.float64) @ wide))
        for document, vector in found
    ]
    return sorted(rows, key=lambda row: -(row.score or 0.0))


# Search


class EngineStore(BackendStore):
    """A store whose table Resift creates and fills, on any engine."""

    extra_rows = 32
    indexes: ClassVar[tuple[str, ...]] = ("",)
    """The kinds of vector index that `optimize` can build."""
    stores_terms: ClassVar[bool] = True
    """Whether the engine stores the terms of a text for keyword search."""
    table_store: ClassVar[str] = ""
    """The store for tables of other programs."""

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
        self.index = check_choice(index, self.indexes, f"index of {name}")
        super().__init__(name, embedder, base.resolve_mode(mode, embedder, default="vector"), threads=threads)
        self.exact = exact
        self._language = language
        self._embedder_name = "" if embedder is None else base.embedder_name(embedder)
        Analyzer(language or "auto")  # raises InputError for an unknown language

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those with the same id; return the number of documents given."""
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
        documents = await self._fetch_documents([hash_id(id) for id in distinct])
        hits = [self._make_hit(Row(document), self.name) for document in documents]
        return base.select_by_ids(distinct, {hit.id: hit for hit in hits})

    async def get_vectors(self, ids: Iterable[str | int]) -> Mapping[str, Vector]:
        """Return id -> unit vector of the documents that have one."""
        if self.embedder is None:
            return {}
        by_key = {hash_id(id): id for id in base.read_ids(ids)}
        return {by_key[key]: vector for key, vector in await self._fetch_vectors(list(by_key))}

    vectors_of = base.deprecated_name("vectors_of", get_vectors)

    async def _search_text(self, query: str, tests: Sequence[Test], k: int, source: str) -> list[Hit]:
        terms = list(dict.fromkeys((await self._load_analyzer()).query_terms(query)))
        if not terms:
            return []
        groups = await self._tag_groups(tests)
        return await self._collect(lambda limit: self._fetch_matching(terms, groups, limit), tests, k, source)

    async def _fetch_nearest(
        self, vector: Array, tests: Sequence[Test], limit: int, *, exact: bool
    ) -> list[Row]:
        groups = await self._tag_groups(tests)
        return cosine_rows(await self._fetch_near(vector, groups, limit, exact=exact), vector)

    async def _tag_groups(self, tests: Sequence[Test]) -> list[list[str]]:
        groups = tag_groups(tests)
        return groups if groups and await self._tags_lists() else []

    async def _has_vector_index(self) -> bool:
        return not self.exact and await self._has_index()

    def _passes(self, row: Row, tests: Sequence[Test]) -> bool:
        return passes_all(row.values["metadata"], tests)

    def _make_hit(self, row: Row, source: str) -> Hit:
        return Hit(row.values["id"], row.values["text"], row.score, source, row.values["metadata"])

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

    # Implemented by engines

    async def _write(self, records: Sequence[Record]) -> None:
        """Create the table if needed, and add or replace these records."""
        raise NotImplementedError

    async def _delete(self, keys: list[str]) -> int:
        """Delete the records with these keys; return how many existed."""
        raise NotImplementedError

    async def _fetch_documents(self, keys: list[str]) -> Iterable[Document]:
        """Return the stored documents with these keys, in any order."""
        raise NotImplementedError

    async def _fetch_vectors(self, keys: list[str]) -> list[tuple[str, Vector]]:
        """Return key and vector of the records that have one."""
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

    async def _fetch_near(
        self, query: Array, groups: list[list[str]], limit: int, *, exact: bool
    ) -> Iterable[tuple[Document, Vector]]:
        """Return document and vector of the nearest rows that have a tag of every group."""
        raise NotImplementedError

    async def _fetch_matching(self, terms: list[str], groups: list[list[str]], limit: int) -> list[Row]:
        """Return the rows that contain any term and have a tag of every group, best first."""
        raise NotImplementedError

    def _check_table(self, table: str, present: Iterable[str], needed: Iterable[str]) -> None:
        """Raise StoreError for a table that Resift did not create."""
        columns = set(present)
        missing = [name for name in needed if name not in columns]
        if missing:
            raise StoreError(
                f"{table!r} of store {self.name!r} was not created by Resift: it has no "
                f"{', '.join(missing)}. Name another table, or search this one as it is with "
                f"{self.table_store}.",
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
