"""LanceDB: the connection, and LanceDBVectorStore, a store whose table Resift creates."""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from resift._internal.arrays import Array, Vector
from resift._internal.forking import after_fork, leak
from resift.errors import require
from resift.protocols import Embedder
from resift.stores import backend
from resift.stores.backend import BackendStore, Document, EngineStore, Record, Row, in_thread
from resift.stores.base import Mode, deprecated_name
from resift.types import JsonObject
from resift.validation import Options, check_arguments, option

if TYPE_CHECKING:
    from lancedb.table import Table

_EMBEDDER, _LANGUAGE, _TAGS = "resift.embedder", "resift.language", "resift.tags"
_TERMS, _VECTOR = "words", "vector"
_BATCH = 500
_THREADS = 4
_MIN_INDEXED_ROWS = 256  # fewer rows cannot be partitioned, and scanning them is fast
_PROBES = 20  # partitions to search
_REFINE = 4  # candidates per result that are rescored with their full vectors


@dataclass(frozen=True, kw_only=True)
class LanceDBFolderOptions(Options):
    """Location of a LanceDB database in a pipeline file."""

    uri: str = option("Folder or address of the database.", kind="path")


class LanceDBBackend(BackendStore):
    """The connection to a LanceDB database, and vector search of one of its tables."""

    engine = "LanceDB store"
    _connection: Any = None
    _table: Any = None
    _forked = False

    def _set_database(self, uri: str | Path, name: str) -> None:
        self._lance = require("lancedb", extra="lancedb")
        self._uri, self.name = str(uri), name
        self._lock = threading.RLock()  # for one writer at a time; reads do not need it
        after_fork(self)

    def reset_after_fork(self) -> None:
        """Make calls raise StoreError in a forked child, where LanceDB has no threads and would hang."""
        leak(self._connection, self._table)
        self._forked = self._connection is not None
        self._lock = threading.RLock()
        self._connection = self._table = None

    def _connect(self) -> Any:
        if self._forked:
            raise self._error(
                f"LanceDB store {self.name!r} was used before this process was forked, and LanceDB does not "
                "survive a fork. Start workers with spawn or forkserver, or open the store only in the workers."
            )
        if self._connection is None:
            # With an interval of zero, every read sees the writes of other processes.
            self._connection = self._lance.connect(self._uri, read_consistency_interval=datetime.timedelta(0))
        return self._connection

    def _list_tables(self) -> Iterator[str]:
        response = self._connect().list_tables()
        yield from response.tables
        while response.page_token:
            response = self._connect().list_tables(page_token=response.page_token)
            yield from response.tables

    def _disconnect(self) -> None:
        with self._lock:
            self._connection = self._table = None


def search_vectors(table: Any, query: Array, column: str, distance: str, select: Sequence[str], *, exact: bool) -> Any:
    """Return a query builder for a vector search, to which a filter and a limit can be added."""
    search = table.search(query, vector_column_name=column).distance_type(distance)
    search = search.select([*select, "_distance"])
    return search.bypass_vector_index() if exact else search.nprobes(_PROBES).refine_factor(_REFINE)


@dataclass(frozen=True, kw_only=True)
class LanceDBOptions(LanceDBFolderOptions, backend.SearchOptions):
    """Options of a LanceDB store in a pipeline file."""

    table: str = option("The table.", default="documents")


class LanceDBVectorStore(LanceDBBackend, EngineStore):
    """A LanceDB table, created by the first `add`: cosine in vector mode, BM25 in text mode, RRF(60) of both.

    Without an embedder the mode is "text"; with one the default is "vector". Every row is compared until
    `optimize` builds the index of type `index`; `exact=True` bypasses the index.
    """

    Options = LanceDBOptions
    table_store = "LanceDBTable"
    needed_columns = ("key", "document", "tags")

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
        super().__init__(name, embedder, mode, language=language, exact=exact, threads=_THREADS)
        self.index = index
        self._set_database(uri, name)
        self._table_name = table
        self._terms_changed = False

    @in_thread
    def count(self) -> int:
        """Return the number of documents."""
        table = self._open_table()
        return 0 if table is None else int(table.count_rows())

    @in_thread
    def optimize(self) -> str:
        """Build or rebuild the vector index and compact the table's files; return a summary."""
        with self._lock:
            table = self._open_table()
            if table is None:
                return "the table does not exist yet"
            rows = int(table.count_rows())
            summary = "files compacted"
            if self.embedder is not None and rows >= _MIN_INDEXED_ROWS:
                kinds = require("lancedb.index", extra="lancedb")
                kind = kinds.HnswSq if self.index == "hnsw" else kinds.IvfFlat
                config = kind(distance_type="dot", num_partitions=max(1, round(rows**0.5 / 4)))
                table.create_index(_VECTOR, config=config, replace=True)
                summary = f"{self.index} index of {rows} vectors built, {summary}"
            self._index_terms(table)
            table.optimize()
            return summary

    optimise = deprecated_name("optimise", optimize)

    async def _exists(self) -> bool:
        return bool(await self.count())

    @in_thread
    def _read_notes(self) -> backend.TableNotes | None:
        table = self._open_table()
        if table is None:
            return None
        return backend.TableNotes(_read_note(table, _LANGUAGE) or "none", _read_note(table, _TAGS))

    @in_thread
    def _has_vector_index(self) -> bool:
        return self._open_table().index_stats(f"{_VECTOR}_idx") is not None

    @in_thread
    def _fetch_near(
        self, query: Array, groups: list[list[str]], limit: int, *, exact: bool
    ) -> list[tuple[Document, Vector]]:
        # Dot product equals cosine for unit vectors, and is defined for the zero vectors of empty texts.
        search = search_vectors(self._open_table(), query, _VECTOR, "dot", ["document", _VECTOR], exact=exact)
        rows = _apply_filter(search.limit(limit), groups).to_list()
        return [(json.loads(row["document"]), row[_VECTOR]) for row in rows]

    @in_thread
    def _fetch_matching(self, terms: list[str], groups: list[list[str]], limit: int) -> list[Row]:
        table = self._open_table()
        with self._lock:
            self._index_terms(table)
        query = require("lancedb.query", extra="lancedb").MatchQuery(" ".join(terms), _TERMS)
        search = table.search(query, query_type="fts").select(["document", "_score"]).limit(limit)
        rows = _apply_filter(search, groups).to_list()
        return [Row(json.loads(row["document"]), float(row["_score"])) for row in rows]

    def _open_table(self) -> Any:
        """Return the table, or None if it does not exist."""
        with self._lock:
            connection = self._connect()
            if self._table is None and self._table_name in self._list_tables():
                table = connection.open_table(self._table_name)
                self._check_table(self._table_name, table.schema.names, _read_note(table, _EMBEDDER))
                self._table = table
            return self._table

    @in_thread
    def _write(self, records: Sequence[Record]) -> None:
        arrow = require("pyarrow", extra="lancedb")
        with self._lock:
            table = self._open_table()
            if table is None:
                fields = [(name, arrow.string()) for name in ("key", "document", _TERMS)]
                fields.append(("tags", arrow.list_(arrow.string())))
                if records[0].vector is not None:
                    fields.append((_VECTOR, arrow.list_(arrow.float32(), len(records[0].vector))))
                language = self._language or "auto"
                notes = {_EMBEDDER: self._embedder_name, _LANGUAGE: language, _TAGS: backend.TAGS_VERSION}
                schema = arrow.schema(fields, metadata=notes)
                self._table = table = self._connection.create_table(self._table_name, schema=schema)
            columns = [
                {"key": key, "document": document, _TERMS: " ".join(terms), "tags": tags, _VECTOR: vector}
                for key, document, tags, terms, vector in records
            ]
            rows = arrow.Table.from_pylist(columns, schema=table.schema)
            table.merge_insert("key").when_matched_update_all().when_not_matched_insert_all().execute(rows)
            self._terms_changed = True

    @in_thread
    def _delete(self, keys: list[str]) -> int:
        with self._lock:
            table = self._open_table()
            if table is None:
                return 0
            before = table.count_rows()
            for start in range(0, len(keys), _BATCH):
                table.delete(f"key IN ({_quote(keys[start : start + _BATCH])})")
            self._terms_changed = True
            return int(before - table.count_rows())

    @in_thread
    def _fetch(self, keys: list[str], *, vectors: bool) -> list[tuple[Document, Vector]]:
        table = self._open_table()
        rows: list[JsonObject] = []
        columns = ["document", _VECTOR] if vectors else ["document"]
        for start in range(0, 0 if table is None else len(keys), _BATCH):
            batch = keys[start : start + _BATCH]
            search = table.search().where(f"key IN ({_quote(batch)})").select(columns).limit(len(batch))
            rows += search.to_list()
        return [(json.loads(row["document"]), row.get(_VECTOR, [])) for row in rows]

    def _index_terms(self, table: Table) -> None:
        """Bring the keyword index up to date; call with the lock held."""
        stats = table.index_stats(f"{_TERMS}_idx")
        if stats is not None and not stats.num_unindexed_rows and not self._terms_changed:
            return
        index = require("lancedb.index", extra="lancedb")
        # Terms are already analyzed, so the index must not stem, fold or drop any of them.
        config = index.FTS(
            base_tokenizer="whitespace", stem=False, remove_stop_words=False, lower_case=False,
            ascii_folding=False, max_token_length=None,
        )  # fmt: skip
        table.create_index(_TERMS, config=config, replace=True)
        self._terms_changed = False


def _read_note(table: Table, name: str) -> str:
    return str((table.schema.metadata or {}).get(name.encode(), b"").decode())


def _apply_filter(search: Any, groups: Sequence[Sequence[str]]) -> Any:
    tests = [f"array_has_any(tags, make_array({_quote(group)}))" for group in groups]
    return search.where(" AND ".join(tests), prefilter=True) if tests else search


def _quote(values: Sequence[str]) -> str:
    # Tags and keys are hexadecimal digits, so nothing in them needs escaping.
    return ", ".join(f"'{value}'" for value in values)
