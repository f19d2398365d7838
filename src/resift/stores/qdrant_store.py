"""QdrantVectorStore: documents in a Qdrant collection, found by vectors."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from resift._internal.arrays import Array
from resift._internal.environment import variable_value
from resift._internal.forking import abandon, after_fork
from resift.errors import InputError, StoreError, require
from resift.external.candidates import Candidate
from resift.models.embedder import EmbedderOptions, embedding_models
from resift.protocols import Embedder
from resift.stores.documents import ids_from, in_order
from resift.stores.engine_store import EngineStore
from resift.stores.records import (
    TAGS_VERSION,
    Record,
    Row,
    document_hit,
    key_of,
    records_from,
    refuse_other_table,
)
from resift.types import Hit, JsonObject
from resift.validation import check_arguments, check_number, option

T = TypeVar("T")

_BATCH = 256
_THREADS = 4
_NAMESPACE = uuid.UUID("6f3c1f0e-8a44-5d0c-9d0e-0a4f5b6d7c8e")
_CANDIDATES = 256  # that HNSW keeps in view; more find more and take longer
_LONGEST_BUILD_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class QdrantOptions(EmbedderOptions):
    """What a pipeline file can say of a Qdrant store."""

    url: str | None = option(
        "Address of the server.", default=None, kind="address", variables=("QDRANT_URL",)
    )
    path: str | None = option("Folder of a local database, instead of `url`.", default=None, kind="path")
    collection: str = option("The collection.", default="resift")
    embedder: str = option("Model that turns the question into a vector.", choices=embedding_models)
    exact: bool = option("Compare every vector, also where an index would be quicker.", default=False)
    api_key_env: str | None = option(
        "Environment variable that holds the server's key.",
        default=None,
        kind="variable",
        variables=("QDRANT_API_KEY",),
    )

    def arguments(self) -> JsonObject:
        """Return the arguments with the key that the variable holds."""
        given = super().arguments()
        variable = given.pop("api_key_env", None)
        return given if variable is None else {**given, "api_key": variable_value(variable)}

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with where the database is."""
        if (self.url is None) == (self.path is None):
            yield "url" if self.url else "", "needs either 'url' or 'path'."


class QdrantVectorStore(EngineStore):
    """A Qdrant collection on a server (`url`), in a folder (`path`) or behind a client of your own.

    The collection is made on the first `add`. Point ids are UUIDs made from the documents' ids, which are
    in the payload with text and metadata. A server's HNSW index is used once `optimise` has built it, unless
    `exact` is set; in a folder or in memory every vector is compared.
    """

    Options = QdrantOptions

    kind = "vector"

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
        if sum(given is not None for given in (url, path, client)) != 1:
            raise InputError("Say where Qdrant is: pass exactly one of url=, path= or client=.")
        check_number(timeout_s, "timeout_s", gt=0)
        # Local mode is not made for threads: one at a time there, as many as wanted on a server.
        threads = 1 if url is None else _THREADS
        super().__init__(name=name, embedder=embedder, mode="vector", exact=exact, threads=threads)
        self.collection = collection
        qdrant = require("qdrant_client", extra="qdrant")
        self._models = qdrant.models
        self._lock = threading.RLock() if url is None else None
        self._given = client
        self._open: Callable[[], Any] = lambda: client
        if path is not None:
            self._open = lambda: qdrant.QdrantClient(path=str(path), force_disable_check_same_thread=True)
        elif url is not None:
            wait_s = max(1, round(timeout_s))
            # The version check runs in a thread of its own and would fail there, out of sight.
            self._open = lambda: qdrant.QdrantClient(
                url=url, api_key=api_key, timeout=wait_s, check_compatibility=False
            )
        try:
            self._client = self._open()
        except (OSError, ValueError) as exc:
            reason = (exc.strerror if isinstance(exc, OSError) else "") or type(exc).__name__
            raise StoreError(
                f"Qdrant store {name!r} cannot be opened: {reason}. Correct path= or url=.", store=name
            ) from exc
        self._local = url is None
        self._lists_tagged = self._is_ours = False
        after_fork(self)

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those of the same id; return how many were given."""
        records = await records_from(documents, self.embedder, None, store=self.name)
        if records:
            await self._work(lambda: self._upsert(records))
        return len(records)

    async def delete(self, ids: Iterable[str | int]) -> int:
        """Remove documents; return how many were there."""
        points = [point_id(id) for id in ids_from(ids)]
        return await self._work(lambda: self._remove(points))

    async def get(self, ids: Iterable[str | int]) -> list[Hit]:
        """Return the documents of these ids in the order asked; unknown ids are left out."""
        asked = ids_from(ids)
        held = await self._work(lambda: self._held([point_id(id) for id in asked], payload=True))
        hits = [document_hit(_document(point.payload), source=self.name) for point in held]
        return in_order(asked, {hit.id: hit for hit in hits})

    async def vectors_of(self, ids: Iterable[str | int]) -> JsonObject:
        """Return id -> unit vector of the documents that are there."""
        asked = {point_id(id): id for id in ids_from(ids)}
        held = await self._work(lambda: self._held(list(asked), payload=False, vectors=True))
        return {asked[str(point.id)]: point.vector for point in held}

    async def count(self) -> int:
        """Return how many documents there are."""

        def job() -> int:
            return int(self._client.count(self.collection, exact=True).count) if self._has_collection() else 0

        return await self._work(job)

    async def optimise(self) -> str:
        """Have the server index all vectors, and wait for it; say what was done."""
        return await self._work(self._optimised)

    async def close(self) -> None:
        """Close the client, unless it was given."""
        if self._given is None:
            await self._workers.run(self._client.close)
        self._workers.close()

    def forget_parent(self) -> None:
        """Open a client anew in a forked child; one that was given is the caller's."""
        if self._given is None:
            abandon(self._client)
            self._client = self._open()
        if self._lock is not None:
            self._lock = threading.RLock()

    async def _work(self, job: Callable[[], T]) -> T:
        return await super()._work(lambda: self._locked(job))

    def _failure(self, exc: Exception) -> StoreError:
        code = getattr(exc, "status_code", None)
        return StoreError(
            f"Qdrant store {self.name!r} failed: {type(exc).__name__}{f' {code}' if code else ''}.",
            store=self.name,
            transient=code is None or code >= 500,
        )

    def _locked(self, job: Callable[[], T]) -> T:
        if self._lock is None:
            return job()
        with self._lock:
            return job()

    async def _exists(self) -> bool:
        return await self._work(self._has_collection)

    async def _tags_lists(self) -> bool:
        def job() -> bool:
            models = self._models
            current = models.FieldCondition(key="tags_version", match=models.MatchValue(value=TAGS_VERSION))
            others = models.Filter(must_not=[current])
            points, _ = self._client.scroll(
                self.collection, scroll_filter=others, limit=1, with_payload=False, with_vectors=False
            )
            return not points

        self._lists_tagged = self._lists_tagged or await self._work(job)
        return self._lists_tagged

    async def _has_index(self) -> bool:
        if self._local:
            return False
        return await self._work(
            lambda: bool(self._client.get_collection(self.collection).indexed_vectors_count)
        )

    async def _nearest(self, asked: Array, groups: list[list[str]], limit: int, *, exact: bool) -> list[Row]:
        return await self._work(lambda: self._queried(asked, groups, limit, exact=exact))

    def _has_collection(self) -> bool:
        if not self._client.collection_exists(self.collection):
            return False
        if not self._is_ours:
            points, _ = self._client.scroll(self.collection, limit=1, with_payload=True, with_vectors=False)
            for point in points:
                needed = ("id", "text", "metadata", "tags")
                refuse_other_table(self.collection, point.payload or (), needed, store=self.name)
            self._is_ours = bool(points)
        return True

    def _upsert(self, records: Sequence[Record]) -> None:
        models = self._models
        if not self._has_collection():
            # Dot, not cosine: vectors have length one, and Qdrant would change those of empty texts.
            size = len(records[0].vector)
            vectors = models.VectorParams(size=size, distance=models.Distance.DOT)
            self._client.create_collection(self.collection, vectors_config=vectors)
            if not self._local:
                keyword = models.PayloadSchemaType.KEYWORD
                self._client.create_payload_index(self.collection, "tags", field_schema=keyword)
        for start in range(0, len(records), _BATCH):
            points = [
                models.PointStruct(
                    id=_uuid(record.key),
                    vector=[float(value) for value in record.vector],
                    payload={
                        **json.loads(record.document),
                        "tags": record.tags,
                        "tags_version": TAGS_VERSION,
                    },
                )
                for record in records[start : start + _BATCH]
            ]
            self._client.upsert(self.collection, points=points, wait=True)

    def _held(self, points: Sequence[str], *, payload: bool, vectors: bool = False) -> list[Any]:
        if not points or not self._has_collection():
            return []
        found = self._client.retrieve(
            self.collection, ids=list(points), with_payload=payload, with_vectors=vectors
        )
        return list(found)

    def _remove(self, points: Sequence[str]) -> int:
        held = [point.id for point in self._held(points, payload=False)]
        if held:
            selector = self._models.PointIdsList(points=held)
            self._client.delete(self.collection, points_selector=selector, wait=True)
        return len(held)

    def _queried(self, asked: Array, groups: list[list[str]], limit: int, *, exact: bool) -> list[Row]:
        models = self._models
        must = [models.FieldCondition(key="tags", match=models.MatchAny(any=list(group))) for group in groups]
        params = models.SearchParams(exact=exact, hnsw_ef=None if exact else max(_CANDIDATES, limit))
        found = self._client.query_points(
            self.collection,
            query=[float(value) for value in asked],
            query_filter=models.Filter(must=must) if must else None,
            limit=limit,
            with_payload=True,
            with_vectors=True,
            # Local mode is always exact, and warns when told to be.
            search_params=None if self._local else params,
        )
        return [Row(_document(point.payload), float(point.score), point.vector) for point in found.points]

    def _optimised(self) -> str:
        if not self._has_collection():
            return "there is no collection yet"
        if self._local:
            return "nothing to do: without a server every vector is compared"
        lowest = self._models.OptimizersConfigDiff(indexing_threshold=1)
        self._client.update_collection(self.collection, optimizers_config=lowest)
        give_up_at = time.monotonic() + _LONGEST_BUILD_S
        while str(self._client.get_collection(self.collection).status.value) != "green":
            if time.monotonic() > give_up_at:
                raise StoreError(
                    f"Qdrant did not finish its index in {_LONGEST_BUILD_S:.0f} s.", store=self.name
                )
            time.sleep(0.2)
        return "hnsw index built"


def point_id(id: str) -> str:
    """Return the UUID under which Qdrant knows a document."""
    return _uuid(key_of(id))


def _uuid(key: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, key))


def _document(payload: Any) -> str:
    return json.dumps({name: payload[name] for name in ("id", "text", "metadata")})
