"""LanceDBVectorStore: documents in a LanceDB table, found by vectors, by words, or by both (N7)."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from resift.candidates import Candidate
from resift.errors import ResiftError, StoreError, require
from resift.protocols import Embedder
from resift.stores.documents import ids_from, in_order, nothing_to_find, ranked
from resift.stores.embedding import identity_of, unit_vectors
from resift.stores.filtering import Where
from resift.stores.hybrid import DEPTH, fuse_views
from resift.stores.memory import Mode, resolve_mode
from resift.stores.records import (
    Record,
    Row,
    document_hit,
    enough,
    found_by_vector,
    found_by_words,
    index_words,
    key_of,
    records_from,
    refuse_other_embedder,
    tag_groups,
)
from resift.stores.workers import Workers
from resift.types import Hit

T = TypeVar("T")
U = TypeVar("U")

_EMBEDDER = b"resift.embedder"
_WORDS = "words"
_BATCH = 500
_THREADS = 4


class LanceDBVectorStore:
    """A LanceDB table: exact cosine in vector mode, BM25 in text mode, RRF(60) of both in hybrid.

    The table is made on the first `add`. Without an embedder the mode is "text"; with one it is "vector"
    unless told otherwise. A table remembers whose vectors it holds and refuses another embedder.
    """

    def __init__(
        self,
        uri: str | Path,
        table: str = "documents",
        *,
        embedder: Embedder | None = None,
        mode: Mode | None = None,
        name: str = "lancedb",
    ) -> None:
        self.name = name
        self.embedder = embedder
        self.mode: Mode = resolve_mode(mode, embedder, default="vector")
        self._uri, self._table_name = str(uri), table
        self._lance = require("lancedb", extra="lancedb")
        self._lock = threading.RLock()
        self._workers = Workers(name, threads=_THREADS)
        self._connection: Any = None
        self._table: Any = None
        self._stale_words = False

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those of the same id; return how many were given."""
        records = await records_from(documents, self.embedder, store=self.name)
        if records:
            await self._work(lambda: self._locked(self._upsert, records))
        return len(records)

    async def delete(self, ids: Iterable[str]) -> int:
        """Remove documents; return how many were there."""
        keys = [key_of(id) for id in ids_from(ids)]
        return await self._work(lambda: self._locked(self._remove, keys))

    async def get(self, ids: Iterable[str]) -> list[Hit]:
        """Return the documents of these ids in the order asked; unknown ids are left out."""
        asked = ids_from(ids)
        held = await self._work(lambda: self._selected([key_of(id) for id in asked], ["document"]))
        hits = [document_hit(row["document"], source=self.name) for row in held]
        return in_order(asked, {hit.id: hit for hit in hits})

    async def vectors_of(self, ids: Iterable[str]) -> dict[str, Any]:
        """Return id -> unit vector of the documents that have one."""
        if self.embedder is None:
            return {}
        asked = {key_of(id): id for id in ids_from(ids)}
        rows = await self._work(lambda: self._selected(list(asked), ["key", "vector"]))
        return {asked[row["key"]]: row["vector"] for row in rows}

    async def count(self) -> int:
        """Return how many documents there are."""
        return await self._work(lambda: 0 if self._opened() is None else int(self._opened().count_rows()))

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata equals `where`."""
        groups = tag_groups(where)
        if nothing_to_find(query, k) or not all(groups) or not await self.count():
            return []
        if self.mode == "text":
            return await self._by_words(query, groups, k, self.name)
        if self.mode == "vector":
            return await self._by_vector(query, groups, k, self.name)
        depth = max(k, DEPTH)
        text = await self._by_words(query, groups, depth, f"{self.name}.text")
        vectors = await self._by_vector(query, groups, depth, f"{self.name}.vectors")
        return fuse_views([text, vectors], k=k, source=self.name)

    async def close(self) -> None:
        """Let go of the table; the next call opens it again."""
        with self._lock:
            self._connection = self._table = None
        self._workers.close()

    async def _by_vector(self, query: str, groups: list[list[str]], k: int, source: str) -> list[Hit]:
        assert self.embedder is not None  # noqa: S101 - resolve_mode refuses vector mode without one
        asked = (await unit_vectors(self.embedder, [query], kind="query", store=self.name))[0]
        rows = await enough(lambda limit: self._work(lambda: self._nearest(asked, groups, limit)), k)
        return ranked(found_by_vector(rows, asked), k=k, source=source)

    async def _by_words(self, query: str, groups: list[list[str]], k: int, source: str) -> list[Hit]:
        asked = list(dict.fromkeys(index_words(query)))
        if not asked:
            return []
        rows = await enough(lambda limit: self._work(lambda: self._matching(asked, groups, limit)), k)
        return ranked(found_by_words(rows), k=k, source=source)

    async def _work(self, job: Callable[[], T]) -> T:
        """Run blocking work in a worker thread; failures of the engine become StoreError."""
        try:
            return await self._workers.run(job)
        except (ResiftError, asyncio.CancelledError):
            raise
        except Exception as exc:
            raise StoreError(
                f"LanceDB store {self.name!r} failed: {type(exc).__name__}.", store=self.name
            ) from exc

    def _locked(self, job: Callable[[U], T], argument: U) -> T:
        """Do work that changes the table or its index; one writer at a time."""
        with self._lock:
            return job(argument)

    def _opened(self) -> Any:
        """Return the table, or None while there is none; reads need no lock, LanceDB has its own."""
        with self._lock:
            if self._connection is None:
                # Read what other processes wrote, too.
                fresh = datetime.timedelta(0)
                self._connection = self._lance.connect(self._uri, read_consistency_interval=fresh)
            if self._table is None and self._table_name in _table_names(self._connection):
                table = self._connection.open_table(self._table_name)
                held = (table.schema.metadata or {}).get(_EMBEDDER, b"").decode()
                refuse_other_embedder(held, self._identity, store=self.name)
                self._table = table
            return self._table

    @property
    def _identity(self) -> str:
        return "" if self.embedder is None else identity_of(self.embedder)

    def _upsert(self, records: Sequence[Record]) -> None:
        table = self._opened()
        if table is None:
            schema = self._schema(records[0])
            self._table = table = self._connection.create_table(self._table_name, schema=schema)
        schema = table.schema
        rows = require("pyarrow", extra="lancedb").Table.from_pylist(
            [_columns(record) for record in records], schema=schema
        )
        table.merge_insert("key").when_matched_update_all().when_not_matched_insert_all().execute(rows)
        self._stale_words = True

    def _schema(self, record: Record) -> Any:
        arrow = require("pyarrow", extra="lancedb")
        fields = [(name, arrow.string()) for name in ("key", "document", "words")]
        fields.append(("tags", arrow.list_(arrow.string())))
        if record.vector is not None:
            fields.append(("vector", arrow.list_(arrow.float32(), len(record.vector))))
        return arrow.schema(fields, metadata={_EMBEDDER: self._identity.encode()})

    def _remove(self, keys: Sequence[str]) -> int:
        table = self._opened()
        if table is None:
            return 0
        before = table.count_rows()
        for batch in _batches(keys):
            table.delete(_one_of("key", batch))
        self._stale_words = True
        return int(before - table.count_rows())

    def _selected(self, keys: Sequence[str], columns: list[str]) -> list[dict[str, Any]]:
        table = self._opened()
        if table is None:
            return []
        found: list[dict[str, Any]] = []
        for batch in _batches(keys):
            asked = table.search().where(_one_of("key", batch)).select(columns).limit(len(batch))
            found += asked.to_list()
        return found

    def _nearest(self, asked: Any, groups: list[list[str]], limit: int) -> list[Row]:
        search = self._opened().search(asked, vector_column_name="vector")
        # Dot, not cosine: vectors have length one, and empty texts have none to divide by.
        search = search.distance_type("dot").select(["document", "vector", "_distance"]).limit(limit)
        rows = _filtered(search, groups).to_list()
        return [Row(row["document"], 1 - row["_distance"], row["vector"]) for row in rows]

    def _matching(self, asked: Sequence[str], groups: list[list[str]], limit: int) -> list[Row]:
        table = self._opened()
        self._locked(self._index_words, table)
        wanted = require("lancedb.query", extra="lancedb").MatchQuery(" ".join(asked), _WORDS)
        search = table.search(wanted, query_type="fts").select(["document", "_score"]).limit(limit)
        rows = _filtered(search, groups).to_list()
        return [Row(row["document"], float(row["_score"])) for row in rows]

    def _index_words(self, table: Any) -> None:
        held = table.index_stats(f"{_WORDS}_idx")
        if held is not None and not held.num_unindexed_rows and not self._stale_words:
            return
        index = require("lancedb.index", extra="lancedb")
        # Words come normalised, so the index must not stem, fold or drop any of them.
        config = index.FTS(
            base_tokenizer="whitespace", stem=False, remove_stop_words=False, lower_case=False,
            ascii_folding=False, max_token_length=None,
        )  # fmt: skip
        table.create_index(_WORDS, config=config, replace=True)
        self._stale_words = False


def _columns(record: Record) -> dict[str, Any]:
    row = {
        "key": record.key,
        "document": record.document,
        "words": " ".join(record.words),
        "tags": record.tags,
    }
    return row if record.vector is None else {**row, "vector": record.vector}


def _filtered(search: Any, groups: Sequence[Sequence[str]]) -> Any:
    # Tags and keys are hex digits: there is nothing in them to quote.
    tests = [f"array_has_any(tags, make_array({_quoted(group)}))" for group in groups]
    return search.where(" AND ".join(tests), prefilter=True) if tests else search


def _one_of(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({_quoted(values)})"


def _quoted(values: Sequence[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _batches(values: Sequence[str]) -> list[Sequence[str]]:
    return [values[start : start + _BATCH] for start in range(0, len(values), _BATCH)]


def _table_names(connection: Any) -> Iterator[str]:
    page: str | None = None
    while True:
        listed = connection.list_tables(page_token=page)
        yield from listed.tables
        page = listed.page_token
        if not page:
            return
