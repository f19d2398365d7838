"""LanceDBVectorStore: documents in a LanceDB table, found by vectors, by words, or by both."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from resift._internal.arrays import Array
from resift._internal.forking import abandon, after_fork
from resift.errors import StoreError, require
from resift.external.candidates import Candidate
from resift.protocols import Embedder
from resift.stores.documents import ids_from, in_order
from resift.stores.engine_store import EngineStore
from resift.stores.memory import Mode
from resift.stores.records import (
    TAGS_VERSION,
    Record,
    Row,
    document_hit,
    key_of,
    records_from,
    refuse_other_embedder,
    refuse_other_table,
)
from resift.stores.store_options import SearchOptions
from resift.types import Hit, JsonObject
from resift.validation import check_arguments, option

T = TypeVar("T")
U = TypeVar("U")

_EMBEDDER, _LANGUAGE, _TAGS = b"resift.embedder", b"resift.language", b"resift.tags"
_WORDS, _VECTOR = "words", "vector"
_BATCH = 500
_THREADS = 4
_LEAST_ROWS = 256  # fewer cannot be partitioned, and are searched at once anyway


@dataclass(frozen=True, kw_only=True)
class LanceDBOptions(SearchOptions):
    """What a pipeline file can say of a LanceDB store."""

    uri: str = option("Folder or address of the database.", kind="path")
    table: str = option("The table.", default="documents")


class LanceDBVectorStore(EngineStore):
    """A LanceDB table: cosine in vector mode, BM25 in text mode, RRF(60) of both in hybrid.

    The table is made on the first `add`. Without an embedder the mode is "text"; with one it is "vector"
    unless told otherwise. A table remembers whose vectors it holds and refuses another embedder. Vectors
    are compared with every row until `optimise` builds the index named by `index`; `exact=True` passes it by.
    """

    Options = LanceDBOptions
    indexes = ("hnsw", "ivf")

    @check_arguments
    def __init__(
        self,
        uri: str | Path,
        table: str = "documents",
        *,
        embedder: Embedder | None = None,
        mode: Mode | None = None,
        name: str = "lancedb",
        language: str | None = None,
        index: Literal["hnsw", "ivf"] = "hnsw",
        exact: bool = False,
    ) -> None:
        super().__init__(name, embedder, mode, language=language, exact=exact, threads=_THREADS, index=index)
        self._uri, self._table_name = str(uri), table
        self._lance = require("lancedb", extra="lancedb")
        self._lock = threading.RLock()
        self._connection: Any = None
        self._table: Any = None
        self._stale_words = False
        self._orphaned = False
        after_fork(self)

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those of the same id; return how many were given."""
        records = await records_from(documents, self.embedder, await self._analyzer(), store=self.name)
        if records:
            await self._work(lambda: self._locked(self._upsert, records))
        return len(records)

    async def delete(self, ids: Iterable[str | int]) -> int:
        """Remove documents; return how many were there."""
        keys = [key_of(id) for id in ids_from(ids)]
        return await self._work(lambda: self._locked(self._remove, keys))

    async def get(self, ids: Iterable[str | int]) -> list[Hit]:
        """Return the documents of these ids in the order asked; unknown ids are left out."""
        asked = ids_from(ids)
        held = await self._work(lambda: self._selected([key_of(id) for id in asked], ["document"]))
        hits = [document_hit(row["document"], source=self.name) for row in held]
        return in_order(asked, {hit.id: hit for hit in hits})

    async def vectors_of(self, ids: Iterable[str | int]) -> JsonObject:
        """Return id -> unit vector of the documents that have one."""
        if self.embedder is None:
            return {}
        asked = {key_of(id): id for id in ids_from(ids)}
        rows = await self._work(lambda: self._selected(list(asked), ["key", _VECTOR]))
        return {asked[row["key"]]: row[_VECTOR] for row in rows}

    async def count(self) -> int:
        """Return how many documents there are."""
        return await self._work(lambda: 0 if self._opened() is None else int(self._opened().count_rows()))

    async def optimise(self) -> str:
        """Build or renew the index of the vectors and compact the table's files; say what was done."""
        return await self._work(lambda: self._locked(self._optimised, None))

    async def close(self) -> None:
        """Let go of the table; the next call opens it again."""
        with self._lock:
            self._connection = self._table = None
        self._workers.close()

    def forget_parent(self) -> None:
        """Refuse to work in a forked child: LanceDB's threads are gone there, its calls would never end."""
        abandon(self._connection, self._table)
        self._orphaned = self._connection is not None
        self._lock = threading.RLock()
        self._connection = self._table = None

    async def _exists(self) -> bool:
        return bool(await self.count())

    async def _table_language(self) -> str | None:
        def job() -> str | None:
            table = self._opened()
            # Tables of Resift 0.1 hold words that were not stemmed, and do not say so.
            return None if table is None else _metadata(table, _LANGUAGE) or "none"

        return await self._work(job)

    async def _tags_lists(self) -> bool:
        return await self._work(lambda: _metadata(self._opened(), _TAGS) == TAGS_VERSION)

    async def _has_index(self) -> bool:
        return await self._work(lambda: self._opened().index_stats(f"{_VECTOR}_idx") is not None)

    async def _nearest(self, asked: Array, groups: list[list[str]], limit: int, *, exact: bool) -> list[Row]:
        def job() -> list[Row]:
            search = self._opened().search(asked, vector_column_name=_VECTOR)
            # Dot, not cosine: vectors have length one, and empty texts have none to divide by.
            search = search.distance_type("dot").select(["document", _VECTOR, "_distance"]).limit(limit)
            search = search.bypass_vector_index() if exact else search.nprobes(_PROBES).refine_factor(_REFINE)
            rows = _filtered(search, groups).to_list()
            return [Row(row["document"], 1 - row["_distance"], row[_VECTOR]) for row in rows]

        return await self._work(job)

    async def _matching(self, terms: list[str], groups: list[list[str]], limit: int) -> list[Row]:
        def job() -> list[Row]:
            table = self._opened()
            self._locked(self._index_words, table)
            wanted = require("lancedb.query", extra="lancedb").MatchQuery(" ".join(terms), _WORDS)
            search = table.search(wanted, query_type="fts").select(["document", "_score"]).limit(limit)
            rows = _filtered(search, groups).to_list()
            return [Row(row["document"], float(row["_score"])) for row in rows]

        return await self._work(job)

    def _failure(self, exc: Exception) -> StoreError:
        return StoreError(f"LanceDB store {self.name!r} failed: {type(exc).__name__}.", store=self.name)

    def _locked(self, job: Callable[[U], T], argument: U) -> T:
        """Do work that changes the table or its index; one writer at a time."""
        with self._lock:
            return job(argument)

    def _opened(self) -> Any:
        """Return the table, or None while there is none; reads need no lock, LanceDB has its own."""
        if self._orphaned:
            raise StoreError(
                f"LanceDB store {self.name!r} was used before this process was forked, and LanceDB does not "
                "survive that. Start workers with spawn or forkserver, or open the store first in them.",
                store=self.name,
            )
        with self._lock:
            if self._connection is None:
                # Read what other processes wrote, too.
                fresh = datetime.timedelta(0)
                self._connection = self._lance.connect(self._uri, read_consistency_interval=fresh)
            if self._table is None and self._table_name in _table_names(self._connection):
                table = self._connection.open_table(self._table_name)
                needed = ("key", "document", "tags")
                refuse_other_table(self._table_name, table.schema.names, needed, store=self.name)
                refuse_other_embedder(_metadata(table, _EMBEDDER), self._identity, store=self.name)
                self._table = table
            return self._table

    def _upsert(self, records: Sequence[Record]) -> None:
        table = self._opened()
        if table is None:
            schema = self._schema(records[0])
            self._table = table = self._connection.create_table(self._table_name, schema=schema)
        rows = require("pyarrow", extra="lancedb").Table.from_pylist(
            [_columns(record) for record in records], schema=table.schema
        )
        table.merge_insert("key").when_matched_update_all().when_not_matched_insert_all().execute(rows)
        self._stale_words = True

    def _schema(self, record: Record) -> Any:
        arrow = require("pyarrow", extra="lancedb")
        fields = [(name, arrow.string()) for name in ("key", "document", _WORDS)]
        fields.append(("tags", arrow.list_(arrow.string())))
        if record.vector is not None:
            fields.append((_VECTOR, arrow.list_(arrow.float32(), len(record.vector))))
        language = (self._language or "auto").encode()
        notes = {
            _EMBEDDER: self._identity.encode(),
            _LANGUAGE: language,
            _TAGS: TAGS_VERSION.encode(),
        }
        return arrow.schema(fields, metadata=notes)

    def _remove(self, keys: Sequence[str]) -> int:
        table = self._opened()
        if table is None:
            return 0
        before = table.count_rows()
        for batch in _batches(keys):
            table.delete(_one_of("key", batch))
        self._stale_words = True
        return int(before - table.count_rows())

    def _selected(self, keys: Sequence[str], columns: list[str]) -> list[JsonObject]:
        table = self._opened()
        if table is None:
            return []
        found: list[JsonObject] = []
        for batch in _batches(keys):
            asked = table.search().where(_one_of("key", batch)).select(columns).limit(len(batch))
            found += asked.to_list()
        return found

    def _optimised(self, _: None) -> str:
        table = self._opened()
        if table is None:
            return "there is no table yet"
        rows = int(table.count_rows())
        done = "files compacted"
        if self.embedder is not None and rows >= _LEAST_ROWS:
            kinds = require("lancedb.index", extra="lancedb")
            parts = max(1, round(rows**0.5 / 4))
            kind = kinds.HnswSq if self.index == "hnsw" else kinds.IvfFlat
            config = kind(distance_type="dot", num_partitions=parts)
            table.create_index(_VECTOR, config=config, replace=True)
            done = f"{self.index} index of {rows} vectors built, {done}"
        self._index_words(table)
        table.optimize()
        return done

    def _index_words(self, table: Any) -> None:
        held = table.index_stats(f"{_WORDS}_idx")
        if held is not None and not held.num_unindexed_rows and not self._stale_words:
            return
        index = require("lancedb.index", extra="lancedb")
        # Terms come analysed, so the index must not stem, fold or drop any of them.
        config = index.FTS(
            base_tokenizer="whitespace", stem=False, remove_stop_words=False, lower_case=False,
            ascii_folding=False, max_token_length=None,
        )  # fmt: skip
        table.create_index(_WORDS, config=config, replace=True)
        self._stale_words = False


_PROBES = 20  # partitions that are looked into
_REFINE = 4  # times as many candidates are compared by their whole vectors


def _columns(record: Record) -> JsonObject:
    row = {
        "key": record.key,
        "document": record.document,
        _WORDS: " ".join(record.terms),
        "tags": record.tags,
    }
    return row if record.vector is None else {**row, _VECTOR: record.vector}


def _metadata(table: Any, name: bytes) -> str:
    return str((table.schema.metadata or {}).get(name, b"").decode())


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
