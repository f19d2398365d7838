"""LanceDBTable, QdrantCollection and ChromaCollection: tables and collections of vector databases.

They are searched by vectors with the embedder that filled them, by keywords, or by both. These engines have
no read-only mode, so the stores call nothing that writes, and open local folders only if they exist.
"""

from __future__ import annotations

import contextlib
import datetime
import inspect
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, Unpack

from resift._internal.arrays import Array
from resift._internal.environment import require_variable
from resift._internal.forking import after_fork, leak
from resift.errors import InputError, StoreError, require
from resift.stores.filters import AnyOf, Condition, Pattern, Test, Value
from resift.stores.tables.base import (
    ColumnArguments,
    ColumnOptions,
    Distance,
    Row,
    TableColumns,
    TableStore,
    distance_score,
    missing_column,
    wrong_dimension,
)
from resift.stores.tables.sql import Column, ColumnKind, Dialect, can_bind, filter_clause
from resift.types import JsonObject
from resift.validation import check_arguments, check_number, option

T = TypeVar("T")

_THREADS = 4
_PAGE = 256
_SAMPLE = 100
POINT_ID = "_id"
"""Name of the id of a point in rows; a payload may have its own `id`."""
DOCUMENT = "document"
"""Name of the text of a Chroma entry in `fields`."""
_MARK = "\0"  # stands for a value until it is written into a filter of LanceDB, which binds none
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


# LanceDB


@dataclass(frozen=True, kw_only=True)
class LanceDBTableOptions(ColumnOptions):
    """Options of an existing LanceDB table in a pipeline file."""

    uri: str = option("Folder or address of the database.", kind="path")
    table: str = option("The table.")
    distance: Distance = option("Distance of the vector column.", default="cosine")
    exact: bool = option("Compare every vector, even if an index would be faster.", default=False)


class LanceDBTable(TableStore):
    """A LanceDB table that another program made.

    Keyword search uses the table's full-text indexes if the fields have them, else BM25 over a scan.
    """

    Options = LanceDBTableOptions
    _dialect = Dialect(_MARK, "", lambda name: f"`{name}`", patterns=False)

    @check_arguments
    def __init__(
        self,
        uri: str | Path,
        table: str,
        *,
        distance: Distance = "cosine",
        exact: bool = False,
        name: str = "lancedb",
        **columns: Unpack[ColumnArguments],
    ) -> None:
        lancedb = require("lancedb", extra="lancedb")
        if "://" not in str(uri) and not Path(uri).is_dir():
            raise StoreError(f"{uri} does not exist; pass the folder of a LanceDB database.", store=name)
        self.distance, self.exact, self.name, self.table = distance, exact, name, table
        self._forked = False
        try:
            # Zero: every read sees what other processes wrote.
            connection = lancedb.connect(str(uri), read_consistency_interval=datetime.timedelta(0))
            tables = list(_list_tables(connection))
            if table not in tables:
                raise InputError(missing_column(str(uri), table, tables, argument="table=", what="tables"))
            self._table = connection.open_table(table)
            found = {field.name: _lance_column(field) for field in self._table.schema}
            indexes = self._table.list_indices()
        except (OSError, RuntimeError, ValueError) as exc:
            if isinstance(exc, InputError):
                raise
            raise StoreError(f"{uri} cannot be read: {type(exc).__name__}.", store=name) from exc
        self.column_types = found
        chosen = TableColumns(store=name, **columns)
        chosen.check(table, found)
        chosen.choose_fields(table, [name for name, column in found.items() if column.kind == "text"])
        chosen.choose_id(table, found, [])
        vectors = [name for name, column in found.items() if column.kind == "vector"]
        if chosen.vector is None and columns.get("embedder") is not None and len(vectors) == 1:
            chosen.vector = vectors[0]
        indexed = {column for index in indexes if index.index_type == "FTS" for column in index.columns}
        self._indexed_text = [name for name in chosen.fields or () if name in indexed]
        self._indexed_vectors = {
            column for index in indexes if index.index_type != "FTS" for column in index.columns
        }
        if not self._indexed_text:
            self.default_mode = "vector"
        super().__init__(name, chosen, columns, threads=_THREADS, has_vectors=chosen.vector in vectors)
        self._selected = [name for name, column in found.items() if column.kind not in ("vector", "binary")]
        after_fork(self)

    def reset_after_fork(self) -> None:
        """Refuse to work in a forked child: LanceDB's threads are gone there and its calls would hang."""
        leak(self._table)
        self._forked = True

    def _check_filter(self, conditions: Sequence[Condition]) -> None:
        for condition in conditions:
            if condition.key not in self.column_types:
                known = list(self.column_types)
                raise InputError(missing_column(self.table, condition.key, known, argument="where"))

    def _check_dimension(self, dimension: int) -> None:
        stored = self.column_types[self.columns.vector or ""].dimension
        if stored and stored != dimension:
            raise wrong_dimension(self.name, self.columns.vector or "", stored, dimension)

    def _has_text_index(self) -> bool:
        return bool(self._indexed_text)

    async def _has_vector_index(self) -> bool:
        return not self.exact and self.columns.vector in self._indexed_vectors

    async def _fetch_text(self, query: str, tests: Sequence[Test], limit: int) -> list[Row]:
        queries = require("lancedb.query", extra="lancedb")
        boosts = [self.columns.weights[name] for name in self._indexed_text]
        match = queries.MatchQuery(query, self._indexed_text[0])
        if len(self._indexed_text) > 1:
            match = queries.MultiMatchQuery(query, self._indexed_text, boosts=boosts)

        def job() -> list[Row]:
            search = self._open().search(match, query_type="fts").select([*self._selected, "_score"])
            rows = self._filtered(search, tests).limit(limit).to_list()
            return [Row(row, float(row.pop("_score"))) for row in rows]

        return await self._work(job)

    async def _fetch_nearest(
        self, vector: Array, tests: Sequence[Test], limit: int, *, exact: bool
    ) -> list[Row]:
        kind = {"inner-product": "dot"}.get(self.distance, self.distance)

        def job() -> list[Row]:
            search = self._open().search(vector, vector_column_name=self.columns.vector).distance_type(kind)
            search = search.select([*self._selected, "_distance"])
            search = search.bypass_vector_index() if exact else search.nprobes(20).refine_factor(4)
            rows = self._filtered(search, tests).limit(limit).to_list()
            return [Row(row, distance_score(row.pop("_distance"), self.distance)) for row in rows]

        return await self._work(job)

    async def _scan(self, tests: Sequence[Test], words: Sequence[str], limit: int) -> tuple[list[Row], int]:
        def job() -> tuple[list[Row], int]:
            where = self._filter_sql(tests)
            table = self._open()
            total = int(table.count_rows(where))
            rows = self._filtered(table.search().select(self._selected), tests).limit(limit).to_list()
            return [Row(row) for row in rows], total

        return await self._work(job)

    def _open(self) -> Any:
        if self._forked:
            raise StoreError(
                f"{self.name!r} was opened before this process was forked. Open it again in the child.",
                store=self.name,
            )
        return self._table

    def _filter_sql(self, tests: Sequence[Test]) -> str | None:
        clause = filter_clause(tests, self.column_types, self._dialect)
        pieces = clause.sql.split(_MARK)
        literals = [_literal(value) for value in clause.values]
        text = "".join(piece + literal for piece, literal in zip(pieces, [*literals, ""], strict=True))
        return text if tests else None

    def _filtered(self, search: Any, tests: Sequence[Test]) -> Any:
        where = self._filter_sql(tests)
        return search if where is None else search.where(where, prefilter=True)


def _lance_column(field: Any) -> Column:
    declared = str(field.type)
    vector = re.fullmatch(r"fixed_size_list<\w+: (?:float|halffloat|double)[^>]*>\[(\d+)\]", declared)
    if vector is not None:
        return Column("vector", "", int(vector[1]))
    kind: ColumnKind = "other"
    if declared in ("string", "large_string", "string_view"):
        kind = "text"
    elif re.fullmatch(r"u?int\d+|float|double|halffloat", declared):
        kind = "number"
    elif declared == "bool":
        kind = "bool"
    elif "binary" in declared:
        kind = "binary"
    if re.search(r"[`.\0]", field.name) and kind != "binary":  # cannot be quoted, so it is filtered here
        kind = "other"
    if "int" in declared:  # compared with any number
        return Column(kind, f"CAST(`{field.name}` AS DOUBLE)")
    return Column(kind, f"`{field.name}`")


def _literal(value: Value) -> str:
    """Return a value as a literal; everything inside quotes is data once quotes are doubled."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _list_tables(connection: Any) -> Iterator[str]:
    page: str | None = None
    while True:
        listed = connection.list_tables(page_token=page)
        yield from listed.tables
        page = listed.page_token
        if not page:
            return


# Collections without a schema


class SchemalessStore(TableStore):
    """A collection whose documents may have any fields; a sample shows which there are."""

    known_fields: list[str]
    is_complete_sample: bool

    def _learn_fields(self, collection: str, columns: TableColumns, rows: Sequence[Row], total: int) -> None:
        """Check the named fields against a sample of the documents, and choose those that are not named."""
        strings: dict[str, None] = {}
        known: dict[str, None] = {}
        self._lists: set[str] = set()
        for row in rows:
            for name, value in row.values.items():
                known[name] = None
                if isinstance(value, str) and name not in (POINT_ID,):
                    strings[name] = None
                if isinstance(value, (list, tuple)):
                    self._lists.add(name)
            nested = row.values.get("metadata")
            if isinstance(nested, Mapping):
                known.update(dict.fromkeys(nested))
                self._lists |= {name for name, value in nested.items() if isinstance(value, (list, tuple))}
        self._nested = {
            name
            for row in rows
            if isinstance(row.values.get("metadata"), Mapping)
            for name in row.values["metadata"]
            if name not in row.values
        }
        self.known_fields = [name for name in known if name != POINT_ID]
        self.is_complete_sample = len(rows) >= total
        self.collection = collection
        if rows:
            # A vector is not a field of the documents.
            vector, columns.vector = columns.vector, None
            columns.check(collection, [*self.known_fields, POINT_ID], what="fields")
            columns.choose_fields(collection, list(strings))
            columns.vector = vector
        elif columns.fields is None:
            raise InputError(f"{collection!r} is empty, so its fields are unknown; name them with fields=.")
        columns.id = columns.id or (POINT_ID,)

    def _check_filter(self, conditions: Sequence[Condition]) -> None:
        for condition in conditions:
            if self.is_complete_sample and self.known_fields and condition.key not in self.known_fields:
                raise InputError(
                    missing_column(
                        self.collection, condition.key, self.known_fields, argument="where", what="fields"
                    )
                )

    def _engine_key(self, key: str) -> str | None:
        """Return the path of a field for the engine's filter; None if the engine cannot test it."""
        path = f"metadata.{key}" if key in self._nested else key
        return path if _PLAIN_KEY.fullmatch(path) and key in self.known_fields else None


# Qdrant


@dataclass(frozen=True, kw_only=True)
class QdrantCollectionOptions(ColumnOptions):
    """Options of an existing Qdrant collection in a pipeline file."""

    url: str | None = option(
        "Address of the server.", default=None, kind="address", variables=("QDRANT_URL",)
    )
    path: str | None = option("Folder of a local database, instead of `url`.", default=None, kind="path")
    collection: str = option("The collection.")
    vector: str | None = option("Name of the vector, if the collection has several.", default=None)
    exact: bool = option("Compare every vector, even if an index would be faster.", default=False)
    api_key_env: str | None = option(
        "Environment variable with the server's API key.",
        default=None,
        kind="variable",
        variables=("QDRANT_API_KEY",),
    )

    def arguments(self) -> JsonObject:
        """Return the arguments of the store, with the API key from its variable."""
        arguments = super().arguments()
        variable = arguments.pop("api_key_env", None)
        return arguments if variable is None else {**arguments, "api_key": require_variable(variable)}

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield an error unless there is exactly one location."""
        if (self.url is None) == (self.path is None):
            yield "url" if self.url else "", "needs either 'url' or 'path'."


class QdrantCollection(SchemalessStore):
    """A Qdrant collection that another program made, with any names in its payload.

    Vector search uses the collection's own distance. Keyword search reads the payloads and computes BM25, up
    to `scan_limit` points.
    """

    Options = QdrantCollectionOptions
    default_mode = "vector"

    @check_arguments
    def __init__(
        self,
        collection: str,
        *,
        url: str | None = None,
        path: str | Path | None = None,
        client: Any = None,
        api_key: str | None = None,
        exact: bool = False,
        timeout_s: float = 10.0,
        name: str = "qdrant",
        **columns: Unpack[ColumnArguments],
    ) -> None:
        if sum(location is not None for location in (url, path, client)) != 1:
            raise InputError("Say where Qdrant is: pass exactly one of url=, path= or client=.")
        timeout = max(1, round(check_number(timeout_s, "timeout_s", gt=0)))
        qdrant = require("qdrant_client", extra="qdrant")
        self._models = qdrant.models
        self.name, self.exact, self._owns = name, exact, client is None
        self._is_local = url is None and not hasattr(getattr(client, "_client", None), "http")
        # Local mode is not thread-safe.
        self._lock = threading.RLock() if self._is_local else contextlib.nullcontext()
        if path is not None and not (Path(path) / "meta.json").is_file():
            raise StoreError(f"{path} is not the folder of a local Qdrant database.", store=name)
        try:
            self._client = client
            if path is not None:
                self._client = qdrant.QdrantClient(path=str(path), force_disable_check_same_thread=True)
            elif url is not None:
                self._client = qdrant.QdrantClient(
                    url=url, api_key=api_key, timeout=timeout, check_compatibility=False
                )
            if not self._client.collection_exists(collection):
                known = sorted(each.name for each in self._client.get_collections().collections)
                raise InputError(
                    missing_column("Qdrant", collection, known, argument="collection=", what="collections")
                )
            info = self._client.get_collection(collection)
            points, _ = self._client.scroll(collection, limit=_SAMPLE, with_payload=True, with_vectors=False)
        except InputError:
            raise
        except Exception as exc:
            raise self._explain(exc) from exc
        chosen = TableColumns(store=name, **columns)
        self._learn_fields(collection, chosen, _point_rows(points), info.points_count or 0)
        vectors = info.config.params.vectors
        self._vectors = dict(vectors) if isinstance(vectors, Mapping) else {"": vectors} if vectors else {}
        if chosen.vector is None and columns.get("embedder") is not None and len(self._vectors) == 1:
            chosen.vector = next(iter(self._vectors))
        if chosen.vector is not None and chosen.vector not in self._vectors:
            known = [name or "(unnamed)" for name in self._vectors]
            raise InputError(
                missing_column(collection, chosen.vector, known, argument="vector=", what="vectors")
            )
        threads = 1 if self._is_local else _THREADS
        super().__init__(name, chosen, columns, threads=threads, has_vectors=chosen.vector in self._vectors)

    def _check_dimension(self, dimension: int) -> None:
        stored = self._vectors[self.columns.vector or ""].size
        if stored != dimension:
            raise wrong_dimension(self.name, self.columns.vector or "the vector", stored, dimension)

    async def _has_vector_index(self) -> bool:
        return not self.exact and not self._is_local

    async def _fetch_nearest(
        self, vector: Array, tests: Sequence[Test], limit: int, *, exact: bool
    ) -> list[Row]:
        models, filter = self._models, self._make_filter(tests)
        params = (
            None
            if self._is_local
            else models.SearchParams(exact=exact, hnsw_ef=None if exact else max(256, limit))
        )
        using = self.columns.vector or ""
        distance = str(getattr(self._vectors[using].distance, "value", ""))
        is_distance = distance in ("Euclid", "Manhattan")

        def job() -> list[Row]:
            answer = self._client.query_points(
                self.collection,
                query=[float(value) for value in vector],
                using=using or None,
                query_filter=filter,
                limit=limit,
                with_payload=True,
                search_params=params,
            )
            scores = [-point.score if is_distance else point.score for point in answer.points]
            return [
                Row(row.values, float(score))
                for row, score in zip(_point_rows(answer.points), scores, strict=True)
            ]

        return await self._locked(job)

    async def _scan(self, tests: Sequence[Test], words: Sequence[str], limit: int) -> tuple[list[Row], int]:
        filter = self._make_filter(tests)

        def job() -> tuple[list[Row], int]:
            total = self._client.count(self.collection, count_filter=filter, exact=True).count
            rows: list[Row] = []
            offset = None
            while len(rows) < limit:
                size = min(_PAGE, limit - len(rows))
                points, offset = self._client.scroll(
                    self.collection, scroll_filter=filter, limit=size, offset=offset, with_payload=True
                )
                rows += _point_rows(points)
                if offset is None:
                    break
            return rows, int(total)

        return await self._locked(job)

    async def _locked(self, job: Callable[[], T]) -> T:
        def work() -> T:
            with self._lock:
                return job()

        return await self._work(work)

    def _make_filter(self, tests: Sequence[Test]) -> Any:
        must = [condition for test in tests if (condition := self._make_condition(test)) is not None]
        return self._models.Filter(must=must) if must else None

    def _make_condition(self, test: Test) -> Any:
        """Return a condition that every passing point meets; None if there is none."""
        models = self._models
        if isinstance(test, AnyOf):
            parts = [self._make_filter(part) for part in test.filters]
            return None if None in parts else models.Filter(should=parts)
        key = self._engine_key(test.key)
        if key is None or test.operator == "!=" or any(isinstance(value, Pattern) for value in test.values):
            return None
        if test.operator != "=":
            [limit] = test.values
            names = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
            if isinstance(limit, str) or not can_bind(limit):
                return None
            return models.FieldCondition(key=key, range=models.Range(**{names[test.operator]: limit}))
        alternatives: list[Any] = []
        for value in test.values:
            if not can_bind(value):
                return None
            if isinstance(value, (str, bool)):
                match = models.MatchValue(value=value)
                alternatives.append(models.FieldCondition(key=key, match=match))
            else:  # a range finds 5 and 5.0
                alternatives.append(models.FieldCondition(key=key, range=models.Range(gte=value, lte=value)))
        return models.Filter(should=alternatives) if alternatives else None

    def _explain(self, exc: Exception) -> StoreError:
        code = getattr(exc, "status_code", None)
        return StoreError(
            f"Qdrant collection {self.name!r} failed: {type(exc).__name__}{f' {code}' if code else ''}.",
            store=self.name,
            transient=code is None or code >= 500,
        )

    def _disconnect(self) -> None:
        if self._owns:
            self._client.close()


def _point_rows(points: Iterable[Any]) -> list[Row]:
    return [Row({**(point.payload or {}), POINT_ID: point.id}) for point in points]


# Chroma


@dataclass(frozen=True, kw_only=True)
class ChromaCollectionOptions(ColumnOptions):
    """Options of an existing Chroma collection in a pipeline file."""

    path: str | None = option("Folder of the database.", default=None, kind="path", must_exist=True)
    host: str | None = option("Host of a Chroma server, instead of `path`.", default=None)
    port: int = option("Port of the server.", default=8000, min=1, max=65535)
    collection: str = option("The collection.")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield an error unless there is exactly one location."""
        if (self.path is None) == (self.host is None):
            yield "path" if self.path else "", "needs either 'path' or 'host'."


class ChromaCollection(SchemalessStore):
    """A Chroma collection: the object, or its name with `path` or `host`.

    `fields` may name `document`, the default, and keys of the metadata. Without an embedder, vector search
    uses the collection's embedding function. Keyword search (`mode="text"`) reads the documents and computes
    BM25, up to `scan_limit` of them.
    """

    Options = ChromaCollectionOptions
    default_mode = "vector"
    embeds_queries = True

    @check_arguments
    def __init__(
        self,
        collection: Any,
        *,
        path: str | Path | None = None,
        host: str | None = None,
        port: int = 8000,
        name: str = "",
        **columns: Unpack[ColumnArguments],
    ) -> None:
        self.name = name or "chroma"
        if isinstance(collection, str):
            collection = self._open(collection, path, host, port)
        if not callable(getattr(collection, "query", None)) or not hasattr(collection, "name"):
            raise InputError(
                f"A {type(collection).__name__} is not a Chroma collection; pass client.get_collection(…), "
                "or its name with path= or host=."
            )
        self._source = collection
        self.name = name or f"chroma.{collection.name}"
        self._is_async = inspect.iscoroutinefunction(collection.query)
        chosen = TableColumns(store=self.name, **{"fields": [DOCUMENT], **columns})
        if columns.get("vector"):
            raise InputError("A Chroma collection has one vector per document; leave vector out.")
        rows, total = ([], 1) if self._is_async else self._sample()
        self._learn_fields(collection.name, chosen, rows, total)
        super().__init__(self.name, chosen, columns, threads=_THREADS, has_vectors=True)

    def _open(self, collection: str, path: str | Path | None, host: str | None, port: int) -> Any:
        if (path is None) == (host is None):
            raise InputError("Say where Chroma is: pass the collection itself, path= or host=.")
        if path is not None and not (Path(path) / "chroma.sqlite3").is_file():
            raise StoreError(f"{path} is not the folder of a Chroma database.", store=self.name)
        chromadb = require("chromadb", extra="chroma")
        settings = chromadb.Settings(anonymized_telemetry=False)
        try:
            client = (
                chromadb.PersistentClient(str(path), settings)
                if path is not None
                else chromadb.HttpClient(host, port, settings=settings)
            )
            known = [each if isinstance(each, str) else each.name for each in client.list_collections()]
            if collection not in known:
                raise InputError(
                    missing_column("Chroma", collection, known, argument="collection=", what="collections")
                )
            return client.get_collection(collection)
        except InputError:
            raise
        except Exception as exc:
            raise self._explain(exc) from exc

    def _sample(self) -> tuple[list[Row], int]:
        try:
            answer = self._source.get(limit=_SAMPLE, include=["documents", "metadatas"])
            return _chroma_rows(answer), int(self._source.count())
        except Exception as exc:
            raise self._explain(exc) from exc

    async def _fetch_by_query(self, query: str, tests: Sequence[Test], limit: int) -> list[Row]:
        return await self._query(tests, limit, query_texts=[query])

    async def _fetch_nearest(
        self, vector: Array, tests: Sequence[Test], limit: int, *, exact: bool
    ) -> list[Row]:
        return await self._query(tests, limit, query_embeddings=[[float(value) for value in vector]])

    async def _has_vector_index(self) -> bool:
        return False  # Chroma always uses its index, so a second search would find the same

    async def _query(self, tests: Sequence[Test], limit: int, **query: Any) -> list[Row]:
        where = self._make_filter(tests)
        answer = await self._call(
            self._source.query,
            **query,
            n_results=limit,
            include=["documents", "metadatas", "distances"],
            **({} if where is None else {"where": where}),
        )
        first = {name: answer[name][0] for name in ("ids", "documents", "metadatas") if answer.get(name)}
        scores = [distance_score(float(d), self._space()) for d in answer["distances"][0]]
        return [Row(row.values, score) for row, score in zip(_chroma_rows(first), scores, strict=True)]

    def _space(self) -> str:
        configuration = getattr(self._source, "configuration_json", None) or {}
        space = (configuration.get("hnsw") or configuration.get("spann") or {}).get("space")
        space = space or (self._source.metadata or {}).get("hnsw:space")
        return "cosine" if space in ("cosine", "ip") else "l2"  # both are 1 − similarity in Chroma

    async def _scan(self, tests: Sequence[Test], words: Sequence[str], limit: int) -> tuple[list[Row], int]:
        where = self._make_filter(tests)
        filters = {} if where is None else {"where": where}
        answer = await self._call(
            self._source.get, limit=limit, include=["documents", "metadatas"], **filters
        )
        rows = _chroma_rows(answer)
        total = len(rows)
        if len(rows) == limit:
            total = len((await self._call(self._source.get, include=[], **filters))["ids"])
        return rows, total

    async def _call(self, method: Callable[..., Any], **arguments: Any) -> Any:
        if self._is_async:
            return await method(**arguments)
        return await self._work(lambda: method(**arguments))

    def _make_filter(self, tests: Sequence[Test]) -> JsonObject | None:
        parts = [part for test in tests if (part := self._make_condition(test)) is not None]
        return _combine("$and", parts)

    def _make_condition(self, test: Test) -> JsonObject | None:
        """Return a condition that every passing document meets; None if there is none."""
        if isinstance(test, AnyOf):
            parts = [self._make_filter(part) for part in test.filters]
            return None if None in parts else _combine("$or", [part for part in parts if part is not None])
        key, values = test.key, test.values
        is_plain = key in self.known_fields and key not in (*self._lists, DOCUMENT) and key[:1] not in "$#"
        if not is_plain or test.operator == "!=" or not all(map(can_bind, values)):
            return None
        name = {"=": "$eq", ">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}[test.operator]
        if any(isinstance(v, Pattern) for v in values) or (name != "$eq" and isinstance(values[0], str)):
            return None
        alternatives: list[JsonObject] = []
        for value in values:
            spellings: list[Any] = [value]
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                # Chroma compares integers with integers and floats with floats.
                rounded = math.floor(value) if name in ("$eq", "$gt", "$gte") else math.ceil(value)
                spellings = [float(value)] if name == "$eq" and value != rounded else [rounded, float(value)]
            alternatives += [{key: {name: spelling}} for spelling in spellings]
        return _combine("$or", alternatives)

    def _explain(self, exc: Exception) -> StoreError:
        kind = type(exc).__name__
        hint = " Pass embedder= of the model that filled it." if "dimension" in str(exc) else ""
        return StoreError(f"Chroma collection {self.name!r} failed: {kind}.{hint}", store=self.name)


def _combine(operator: str, parts: Sequence[JsonObject]) -> JsonObject | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else {operator: list(parts)}


def _chroma_rows(answer: Mapping[str, Any]) -> list[Row]:
    documents = answer.get("documents") or [None] * len(answer["ids"])
    metadatas = answer.get("metadatas") or [None] * len(answer["ids"])
    return [
        Row({**(metadata or {}), DOCUMENT: document, POINT_ID: id})
        for id, document, metadata in zip(answer["ids"], documents, metadatas, strict=True)
    ]
