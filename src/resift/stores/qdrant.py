"""Qdrant: the client, and QdrantVectorStore, a store whose collection Resift creates."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from resift._internal.arrays import Array, Vector
from resift._internal.forking import after_fork, leak
from resift.errors import InputError, StoreError, require
from resift.models.embedder import EmbedderOptions, embedding_models
from resift.models.registry import pin_advice
from resift.protocols import Embedder
from resift.stores import backend
from resift.stores.backend import BackendStore, Document, EngineStore, Record, in_thread
from resift.stores.base import deprecated_name
from resift.types import JsonObject, JsonValue
from resift.validation import check_arguments, check_number, option

if TYPE_CHECKING:
    from qdrant_client.models import Filter, ScoredPoint
    from qdrant_client.models import Record as Point

T = TypeVar("T")

_BATCH = 256
_THREADS = 4
_NAMESPACE = uuid.UUID("6f3c1f0e-8a44-5d0c-9d0e-0a4f5b6d7c8e")
_CANDIDATES = 256  # minimum size of HNSW's candidate list; a longer list finds more and is slower
_BUILD_TIMEOUT_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class QdrantClientOptions(backend.ApiKeyOptions):
    """Location of a Qdrant database in a pipeline file."""

    url: str | None = option("Address of the server.", default=None, kind="address", variables=("QDRANT_URL",))
    path: str | None = option("Folder of a local database, instead of `url`.", default=None, kind="path")
    exact: bool = option("Compare every vector, even if an index would be faster.", default=False)
    api_key_env: str | None = option(
        "Environment variable with the server's API key.", default=None, kind="variable", variables=("QDRANT_API_KEY",)
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield an error unless exactly one location is set."""
        if (self.url is None) == (self.path is None):
            yield "url" if self.url else "", "needs either 'url' or 'path'."


class QdrantBackend(BackendStore):
    """A Qdrant client: for a server (`url`), for a local folder (`path`), or provided by the caller."""

    collection: str

    def _set_client(
        self, name: str, *, url: str | None, path: str | Path | None, client: Any, api_key: str | None, timeout_s: float
    ) -> int:
        """Open the client and return the number of threads that may use it."""
        if sum(location is not None for location in (url, path, client)) != 1:
            raise InputError("The location of Qdrant is unclear: pass exactly one of url=, path= or client=.")
        wait_s = max(1, round(check_number(timeout_s, "timeout_s", gt=0)))
        qdrant = require("qdrant_client", extra="qdrant")
        self.name, self._models = name, qdrant.models
        # Local mode is not thread-safe, so it gets one thread and a lock.
        options = getattr(client, "init_options", {"path": ""})
        self._is_local = url is None and (options.get("path") is not None or options.get("location") == ":memory:")
        self._lock = threading.RLock() if self._is_local else contextlib.nullcontext()
        self._owns_client = client is None
        settings: JsonObject = {"path": str(path), "force_disable_check_same_thread": True}
        if url is not None:  # the version check runs in a separate thread, where a failure would go unnoticed
            settings = {"url": url, "api_key": api_key, "timeout": wait_s, "check_compatibility": False}
        self._connect = partial(qdrant.QdrantClient, **settings)
        try:
            self._client = self._connect() if client is None else client
        except (OSError, ValueError) as exc:
            reason = getattr(exc, "strerror", "") or type(exc).__name__
            raise self._error(f"Qdrant store {name!r} cannot be opened: {reason}. Correct path= or url=.") from exc
        after_fork(self)
        return 1 if self._is_local else _THREADS

    def reset_after_fork(self) -> None:
        """Open a new client in a forked child; a client passed by the caller is kept."""
        if self._owns_client:
            leak(self._client)
            self._client = self._connect()
        if self._is_local:
            self._lock = threading.RLock()

    async def _work(self, job: Callable[[], T], *, interrupt: Callable[[], None] | None = None) -> T:
        def work() -> T:
            with self._lock:
                return job()

        return await super()._work(work, interrupt=interrupt)

    def _query(
        self, vector: Array, filter: Filter | None, limit: int, *, exact: bool, **options: JsonValue
    ) -> list[ScoredPoint]:
        """Return the nearest points with their payloads."""
        ef = None if exact else max(_CANDIDATES, limit)
        response = self._client.query_points(
            self.collection,
            query=[float(value) for value in vector],
            query_filter=filter,
            limit=limit,
            with_payload=True,
            # Local mode is always exact, and warns about search parameters.
            search_params=None if self._is_local else self._models.SearchParams(exact=exact, hnsw_ef=ef),
            **options,
        )
        return list(response.points)

    def _explain(self, exc: Exception) -> StoreError:
        code = getattr(exc, "status_code", None)
        problem = f"{type(exc).__name__}{f' {code}' if code else ''}"
        return self._error(f"Qdrant store {self.name!r} failed: {problem}.", transient=code is None or code >= 500)

    def _disconnect(self) -> None:
        if self._owns_client:
            self._client.close()


@dataclass(frozen=True, kw_only=True)
class QdrantOptions(QdrantClientOptions, EmbedderOptions):
    """Options of a Qdrant store in a pipeline file."""

    collection: str = option("The collection.", default="resift")
    embedder: str = option("Model that embeds the query.", choices=embedding_models, advice=pin_advice)


class QdrantVectorStore(QdrantBackend, EngineStore):
    """A Qdrant collection on a server (`url`), in a local folder (`path`), or accessed with your own client.

    The collection is created by the first `add`. On a server, searches use the HNSW index after `optimize` has
    built it, unless `exact` is set. In a folder or in memory, every vector is compared.
    """

    Options = QdrantOptions
    table_store = "QdrantCollection"
    needed_columns = ("id", "text", "metadata", "tags")
    kind = "vector"
    stores_terms = False

    @check_arguments
    def __init__(
        self,
        collection: str = "resift",
        *,
        embedder: Embedder,
        url: str | None = None,
        path: str | Path | None = None,
        client: Any = None,
        api_key: str | None = None,
        name: str = "qdrant",
        timeout_s: float = 10.0,
        exact: bool = False,
    ) -> None:
        threads = self._set_client(name, url=url, path=path, client=client, api_key=api_key, timeout_s=timeout_s)
        self.single_writer = self._is_local
        super().__init__(name=name, embedder=embedder, mode="vector", exact=exact, threads=threads)
        self.collection = collection
        self._all_lists_tagged = self._is_checked = False

    @in_thread
    def count(self) -> int:
        """Return the number of documents."""
        return int(self._client.count(self.collection, exact=True).count) if self._has_collection() else 0

    @in_thread
    def optimize(self) -> str:
        """Make the server index all vectors and wait until it has finished; return a summary."""
        if not self._has_collection():
            return "the collection does not exist yet"
        if self._is_local:
            return "nothing to do: without a server every vector is compared"
        config = self._models.OptimizersConfigDiff(indexing_threshold=1)
        self._client.update_collection(self.collection, optimizers_config=config)
        give_up_at = time.monotonic() + _BUILD_TIMEOUT_S
        while str(self._client.get_collection(self.collection).status.value) != "green":
            if time.monotonic() > give_up_at:
                raise StoreError(f"Qdrant did not finish indexing in {_BUILD_TIMEOUT_S:.0f} s.", store=self.name)
            time.sleep(0.2)
        return "hnsw index built"

    optimise = deprecated_name("optimise", optimize)

    @in_thread
    def _write(self, records: Sequence[Record]) -> None:
        models = self._models
        if not self._has_collection():
            # Dot product equals cosine for unit vectors; with cosine, Qdrant would change those of empty texts.
            config = models.VectorParams(size=len(records[0].vector), distance=models.Distance.DOT)
            self._client.create_collection(self.collection, vectors_config=config)
            if not self._is_local:
                keyword = models.PayloadSchemaType.KEYWORD
                self._client.create_payload_index(self.collection, "tags", field_schema=keyword)
        for start in range(0, len(records), _BATCH):
            points = [
                models.PointStruct(
                    id=make_point_id(record.key),
                    vector=[float(value) for value in record.vector],
                    payload={**json.loads(record.document), "tags": record.tags, "tags_version": backend.TAGS_VERSION},
                )
                for record in records[start : start + _BATCH]
            ]
            self._client.upsert(self.collection, points=points, wait=True)

    @in_thread
    def _delete(self, keys: list[str]) -> int:
        existing = [point.id for point in self._retrieve(keys, payload=False)]
        if existing:
            selector = self._models.PointIdsList(points=existing)
            self._client.delete(self.collection, points_selector=selector, wait=True)
        return len(existing)

    @in_thread
    def _fetch(self, keys: list[str], *, vectors: bool) -> list[tuple[Document, Vector]]:
        points = self._retrieve(keys, payload=True, vectors=vectors)
        return [(point.payload or {}, point.vector) for point in points]  # type: ignore[misc]

    @in_thread
    def _read_notes(self) -> backend.TableNotes | None:
        if not self._has_collection():
            return None
        if not self._all_lists_tagged:
            models = self._models
            current = models.FieldCondition(key="tags_version", match=models.MatchValue(value=backend.TAGS_VERSION))
            outdated = models.Filter(must_not=[current])
            points, _ = self._client.scroll(self.collection, scroll_filter=outdated, limit=1, with_payload=False)
            self._all_lists_tagged = not points
        return backend.TableNotes("none", backend.TAGS_VERSION if self._all_lists_tagged else "")

    @in_thread
    def _has_vector_index(self) -> bool:
        return not self._is_local and bool(self._client.get_collection(self.collection).indexed_vectors_count)

    @in_thread
    def _fetch_near(
        self, query: Array, groups: list[list[str]], limit: int, *, exact: bool
    ) -> list[tuple[Document, JsonValue]]:
        models = self._models
        must = [models.FieldCondition(key="tags", match=models.MatchAny(any=list(group))) for group in groups]
        points = self._query(query, models.Filter(must=must) if must else None, limit, exact=exact, with_vectors=True)
        return [(point.payload or {}, point.vector) for point in points]

    def _has_collection(self) -> bool:
        if not self._client.collection_exists(self.collection):
            return False
        if not self._is_checked:
            points, _ = self._client.scroll(self.collection, limit=1)
            for point in points:
                self._check_table(self.collection, point.payload or ())
            self._is_checked = bool(points)
        return True

    def _retrieve(self, keys: Sequence[str], *, payload: bool, vectors: bool = False) -> list[Point]:
        if not keys or not self._has_collection():
            return []
        points = [make_point_id(key) for key in keys]
        return list(self._client.retrieve(self.collection, points, payload, vectors))


def make_point_id(key: str) -> str:
    """Return the UUID of a document in Qdrant, derived from its hashed id."""
    return str(uuid.uuid5(_NAMESPACE, key))
