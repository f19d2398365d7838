"""QdrantCollection and ChromaCollection: existing collections whose documents may have any fields.

These engines have no read-only mode. So the stores call no method that writes, and open only existing folders.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from resift._internal.arrays import Array
from resift.errors import InputError, StoreError, require
from resift.stores.backend import Row, in_thread
from resift.stores.filters import Condition, Test, translate_tests
from resift.stores.qdrant import QdrantBackend, QdrantClientOptions
from resift.stores.tables import table_store
from resift.stores.tables.table_store import ColumnArguments, ColumnOptions, TableColumns, TableStore, missing_column
from resift.types import JsonMapping, JsonObject, JsonValue
from resift.validation import check_arguments, option

if TYPE_CHECKING:
    from qdrant_client.models import Record as Point
    from qdrant_client.models import ScoredPoint

_PAGE = 256
_SAMPLE = 100
POINT_ID = "_id"  # name of the point id in rows, because a payload may have its own `id`
DOCUMENT = "document"  # name in `fields` for the text of a Chroma entry
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


class SchemalessStore(TableStore):
    """A collection whose documents may have any fields; a sample determines the available fields."""

    column_word = "fields"
    known_fields: list[str]

    def _learn_fields(self, collection: str, columns: TableColumns, rows: Sequence[Row], total: int) -> None:
        """Check the fields that the caller named against a sample of documents, and choose the others."""
        known: dict[str, None] = {}
        strings: dict[str, None] = {}
        self._lists, self._nested = set[str](), set[str]()
        for row in rows:
            values = table_store.flatten_metadata(row.values)
            known |= dict.fromkeys([*row.values, *values])
            strings |= dict.fromkeys(name for name, value in row.values.items() if isinstance(value, str))
            self._lists |= {name for name, value in values.items() if isinstance(value, (list, tuple))}
            self._nested |= values.keys() - row.values.keys()
        strings.pop(POINT_ID, None)
        self.known_fields = [name for name in known if name != POINT_ID]
        self.filter_columns = self.known_fields if len(rows) >= total else []
        self.table = collection
        if rows:
            columns.choose(collection, [*self.known_fields, POINT_ID], list(strings), [POINT_ID], what="fields")
        elif columns.fields is None:
            raise InputError(f"{collection!r} is empty, so its fields are unknown; list them in fields=.")
        columns.id = columns.id or (POINT_ID,)


# Qdrant


@dataclass(frozen=True, kw_only=True)
class QdrantCollectionOptions(QdrantClientOptions, ColumnOptions):
    """Options of an existing Qdrant collection in a pipeline file."""

    collection: str = option("The collection.")
    vector: str | None = option("Name of the vector, if the collection has several.", default=None)


class QdrantCollection(QdrantBackend, SchemalessStore):
    """A Qdrant collection created by another program. Keyword search reads payloads and computes BM25."""

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
        if path is not None and not (Path(path) / "meta.json").is_file():
            raise StoreError(f"{path} is not the folder of a local Qdrant database.", store=name)
        threads = self._set_client(name, url=url, path=path, client=client, api_key=api_key, timeout_s=timeout_s)
        self.collection, self.exact = collection, exact
        with self._explained():
            if not self._client.collection_exists(collection):
                known = sorted(item.name for item in self._client.get_collections().collections)
                raise missing_column("Qdrant", collection, known, "collection=", "collections")
            info = self._client.get_collection(collection)
            points, _ = self._client.scroll(collection, limit=_SAMPLE, with_payload=True, with_vectors=False)
        chosen = TableColumns(store=name, **columns)
        self._learn_fields(collection, chosen, _point_rows(points), info.points_count or 0)
        vectors = info.config.params.vectors
        self._vectors = dict(vectors) if isinstance(vectors, Mapping) else {"": vectors} if vectors else {}
        dimensions = {name: int(vector.size) for name, vector in self._vectors.items()}
        self.vector_dimension = chosen.choose_vector(collection, dimensions, what="vectors")
        super().__init__(chosen, threads=threads)

    async def _has_vector_index(self) -> bool:
        return not self._is_local

    @in_thread
    def _fetch_nearest(self, vector: Array, tests: Sequence[Test], limit: int, *, exact: bool) -> list[Row]:
        using = self.columns.vector or ""
        distance = str(getattr(self._vectors[using].distance, "value", ""))
        sign = -1 if distance in ("Euclid", "Manhattan") else 1
        points = self._query(vector, self._make_filter(tests), limit, exact=exact, using=using or None)
        return [Row(row.values, sign * point.score) for row, point in zip(_point_rows(points), points, strict=True)]

    @in_thread
    def _scan(self, tests: Sequence[Test], words: Sequence[str], limit: int) -> tuple[list[Row], int]:
        filter = self._make_filter(tests)
        total = self._client.count(self.collection, count_filter=filter, exact=True).count
        points, offset = self._client.scroll(self.collection, scroll_filter=filter, limit=min(_PAGE, limit))
        while offset is not None and len(points) < limit:
            size = min(_PAGE, limit - len(points))
            page, offset = self._client.scroll(self.collection, scroll_filter=filter, limit=size, offset=offset)
            points += page
        return _point_rows(points), int(total)

    def _make_filter(self, tests: Sequence[Test]) -> JsonValue:
        models = self._models
        must = translate_tests(
            tests,
            self._make_condition,
            lambda alternatives: models.Filter(should=[models.Filter(must=part) for part in alternatives]),
        )
        return models.Filter(must=must) if must else None

    def _make_condition(self, test: Condition) -> object:
        """Return a condition that all passing points meet, or None if Qdrant cannot express one."""
        models = self._models
        key = f"metadata.{test.key}" if test.key in self._nested else test.key
        if test.key not in self.known_fields or not _PLAIN_KEY.fullmatch(key) or not table_store.can_bind_all(test):
            return None
        if test.operator != "=":
            limit, names = test.values[0], {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
            if isinstance(limit, str):
                return None
            return models.FieldCondition(key=key, range=models.Range(**{names[test.operator]: limit}))
        alternatives: list[JsonValue] = []
        for value in test.values:
            if isinstance(value, (str, bool)):
                alternatives.append(models.FieldCondition(key=key, match=models.MatchValue(value=value)))
            else:  # a range matches both 5 and 5.0
                alternatives.append(models.FieldCondition(key=key, range=models.Range(gte=value, lte=value)))
        return models.Filter(should=alternatives) if alternatives else None


def _point_rows(points: Iterable[Point | ScoredPoint]) -> list[Row]:
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
        """Yield an error unless exactly one location is set."""
        if (self.path is None) == (self.host is None):
            yield "path" if self.path else "", "needs either 'path' or 'host'."


class ChromaCollection(SchemalessStore):
    """A Chroma collection, passed as an object, or by name together with `path` or `host`.

    `fields` may contain `document`, which is the default, and metadata keys. Without an embedder, vector search
    uses the collection's embedding function. Keyword search reads documents and computes BM25.
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
        if columns.get("vector"):
            raise InputError("A Chroma collection has one vector per document; omit vector.")
        rows, total = list[Row](), 1
        if not self._is_async:
            with self._explained():
                rows = _chroma_rows(collection.get(limit=_SAMPLE, include=["documents", "metadatas"]))
                total = int(collection.count())
        has_documents = not rows or any(row.values[DOCUMENT] for row in rows)
        columns.setdefault("fields", [DOCUMENT] if has_documents else None)
        chosen = TableColumns(store=self.name, **columns)
        self._learn_fields(collection.name, chosen, rows, total)
        super().__init__(chosen)

    def _open(self, collection: str, path: str | Path | None, host: str | None, port: int) -> Any:
        if (path is None) == (host is None):
            raise InputError("The location of Chroma is unclear: pass the collection itself, path= or host=.")
        if path is not None and not (Path(path) / "chroma.sqlite3").is_file():
            raise StoreError(f"{path} is not the folder of a Chroma database.", store=self.name)
        chromadb = require("chromadb", extra="chroma")
        settings = chromadb.Settings(anonymized_telemetry=False)
        with self._explained():
            if path is not None:
                client = chromadb.PersistentClient(str(path), settings)
            else:
                client = chromadb.HttpClient(host, port, settings=settings)
            known = [item if isinstance(item, str) else item.name for item in client.list_collections()]
            if collection not in known:
                raise missing_column("Chroma", collection, known, "collection=", "collections")
            return client.get_collection(collection)

    async def _fetch_by_query(self, query: str, tests: Sequence[Test], limit: int) -> list[Row]:
        return await self._query(tests, limit, query_texts=[query])

    async def _fetch_nearest(self, vector: Array, tests: Sequence[Test], limit: int, *, exact: bool) -> list[Row]:
        return await self._query(tests, limit, query_embeddings=[vector.tolist()])

    async def _query(self, tests: Sequence[Test], limit: int, **query: JsonValue) -> list[Row]:
        include = ["documents", "metadatas", "distances"]
        query.update(n_results=limit, include=include, where=self._make_filter(tests))
        response = await self._call(self._source.query, **query)
        first = {name: response[name][0] for name in ("ids", "documents", "metadatas") if response.get(name)}
        scores = [table_store.distance_score(float(d), self._space()) for d in response["distances"][0]]
        return [Row(row.values, score) for row, score in zip(_chroma_rows(first), scores, strict=True)]

    def _space(self) -> str:
        configuration = getattr(self._source, "configuration_json", None) or {}
        space = (configuration.get("hnsw") or configuration.get("spann") or {}).get("space")
        space = space or (self._source.metadata or {}).get("hnsw:space")
        return "cosine" if space in ("cosine", "ip") else "l2"  # both are 1 − similarity in Chroma

    async def _scan(self, tests: Sequence[Test], words: Sequence[str], limit: int) -> tuple[list[Row], int]:
        where = self._make_filter(tests)
        response = await self._call(self._source.get, limit=limit, include=["documents", "metadatas"], where=where)
        rows = _chroma_rows(response)
        total = len(rows)
        if len(rows) == limit:
            total = len((await self._call(self._source.get, include=[], where=where))["ids"])
        return rows, total

    def _make_filter(self, tests: Sequence[Test]) -> JsonObject | None:
        return _combine("$and", translate_tests(tests, self._make_condition, _any_of))

    def _make_condition(self, test: Condition) -> JsonObject | None:
        """Return a condition that all passing documents meet, or None if Chroma cannot express one."""
        key, values = test.key, test.values
        is_plain = key in self.known_fields and key not in (*self._lists, DOCUMENT) and key[:1] not in "$#"
        name = {"=": "$eq", ">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}[test.operator]
        if not is_plain or not table_store.can_bind_all(test) or (name != "$eq" and isinstance(values[0], str)):
            return None
        alternatives: list[JsonObject] = []
        for value in values:
            spellings: list[JsonValue] = [value]
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                # Chroma compares integers only with integers, and floats only with floats.
                rounded = math.floor(value) if name in ("$eq", "$gt", "$gte") else math.ceil(value)
                spellings = [float(value)] if name == "$eq" and value != rounded else [rounded, float(value)]
            alternatives += [{key: {name: spelling}} for spelling in spellings]
        return _combine("$or", alternatives)

    def _explain(self, exc: Exception) -> StoreError:
        kind = type(exc).__name__
        unknown = "dimension" in str(exc) or getattr(self, "embedder", None) is None
        hint = " Pass the embedder that it was built with as embedder=, or mode='text'." if unknown else ""
        return StoreError(f"Chroma collection {self.name!r} failed: {kind}.{hint}", store=self.name)


def _combine(operator: str, parts: Sequence[JsonObject]) -> JsonObject | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else {operator: list(parts)}


def _any_of(alternatives: Sequence[Sequence[JsonObject]]) -> JsonObject:
    return {"$or": [_combine("$and", part) for part in alternatives]}


def _chroma_rows(response: JsonMapping) -> list[Row]:
    documents = response.get("documents") or [None] * len(response["ids"])
    metadatas = response.get("metadatas") or [None] * len(response["ids"])
    return [
        Row({**(metadata or {}), DOCUMENT: document, POINT_ID: id})
        for id, document, metadata in zip(response["ids"], documents, metadatas, strict=True)
    ]
