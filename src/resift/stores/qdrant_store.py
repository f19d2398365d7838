"""QdrantVectorStore: documents in a Qdrant collection, found by vectors (N7)."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from resift.candidates import Candidate
from resift.errors import InputError, ResiftError, StoreError, require
from resift.protocols import Embedder
from resift.stores.documents import ids_from, in_order, nothing_to_find, ranked
from resift.stores.embedding import unit_vectors
from resift.stores.filtering import Where
from resift.stores.records import (
    Record,
    Row,
    document_hit,
    enough,
    found_by_vector,
    key_of,
    records_from,
    tag_groups,
)
from resift.stores.workers import Workers
from resift.types import Hit

T = TypeVar("T")

_BATCH = 256
_THREADS = 4
_NAMESPACE = uuid.UUID("6f3c1f0e-8a44-5d0c-9d0e-0a4f5b6d7c8e")


class QdrantVectorStore:
    """A Qdrant collection on a server (`url`), in a folder (`path`) or behind a client of your own.

    The collection is made on the first `add`. Point ids are UUIDs made from the documents' ids, which are
    in the payload with text and metadata.
    """

    kind = "vector"

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
    ) -> None:
        if sum(given is not None for given in (url, path, client)) != 1:
            raise InputError("Say where Qdrant is: pass exactly one of url=, path= or client=.")
        self.name = name
        self.embedder = embedder
        self.collection = collection
        qdrant = require("qdrant_client", extra="qdrant")
        self._models = qdrant.models
        # Local mode is not made for threads: one at a time there, as many as wanted on a server.
        self._lock = threading.RLock() if url is None else None
        self._workers = Workers(name, threads=1 if url is None else _THREADS)
        self._owned = client is None
        if client is not None:
            self._client = client
        elif path is not None:
            self._client = qdrant.QdrantClient(path=str(path), force_disable_check_same_thread=True)
        else:
            wait_s = max(1, round(timeout_s))
            # The version check runs in a thread of its own and would fail there, out of sight.
            self._client = qdrant.QdrantClient(
                url=url, api_key=api_key, timeout=wait_s, check_compatibility=False
            )

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those of the same id; return how many were given."""
        records = await records_from(documents, self.embedder, store=self.name)
        if records:
            await self._work(lambda: self._upsert(records))
        return len(records)

    async def delete(self, ids: Iterable[str]) -> int:
        """Remove documents; return how many were there."""
        points = [point_id(id) for id in ids_from(ids)]
        return await self._work(lambda: self._remove(points))

    async def get(self, ids: Iterable[str]) -> list[Hit]:
        """Return the documents of these ids in the order asked; unknown ids are left out."""
        asked = ids_from(ids)
        held = await self._work(lambda: self._held([point_id(id) for id in asked], payload=True))
        hits = [document_hit(_document(point.payload), source=self.name) for point in held]
        return in_order(asked, {hit.id: hit for hit in hits})

    async def vectors_of(self, ids: Iterable[str]) -> dict[str, Any]:
        """Return id -> unit vector of the documents that are there."""
        asked = {point_id(id): id for id in ids_from(ids)}
        held = await self._work(lambda: self._held(list(asked), payload=False, vectors=True))
        return {asked[str(point.id)]: point.vector for point in held}

    async def count(self) -> int:
        """Return how many documents there are."""

        def job() -> int:
            return int(self._client.count(self.collection, exact=True).count) if self._exists() else 0

        return await self._work(job)

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata equals `where`."""
        groups = tag_groups(where)
        if nothing_to_find(query, k) or not all(groups) or not await self._work(self._exists):
            return []
        asked = (await unit_vectors(self.embedder, [query], kind="query", store=self.name))[0]
        rows = await enough(lambda limit: self._work(lambda: self._nearest(asked, groups, limit)), k)
        return ranked(found_by_vector(rows, asked), k=k, source=self.name)

    async def close(self) -> None:
        """Close the client, unless it was given."""
        if self._owned:
            await self._workers.run(self._client.close)
        self._workers.close()

    async def _work(self, job: Callable[[], T]) -> T:
        """Run blocking work in a worker thread; failures of the engine become StoreError."""
        try:
            return await self._workers.run(lambda: self._locked(job))
        except (ResiftError, asyncio.CancelledError):
            raise
        except Exception as exc:
            code = getattr(exc, "status_code", None)
            raise StoreError(
                f"Qdrant store {self.name!r} failed: {type(exc).__name__}{f' {code}' if code else ''}.",
                store=self.name,
                transient=code is None or code >= 500,
            ) from exc

    def _locked(self, job: Callable[[], T]) -> T:
        if self._lock is None:
            return job()
        with self._lock:
            return job()

    def _exists(self) -> bool:
        return bool(self._client.collection_exists(self.collection))

    def _upsert(self, records: Sequence[Record]) -> None:
        models = self._models
        if not self._exists():
            # Dot, not cosine: vectors have length one, and Qdrant would change those of empty texts.
            size = len(records[0].vector)
            vectors = models.VectorParams(size=size, distance=models.Distance.DOT)
            self._client.create_collection(self.collection, vectors_config=vectors)
            if self._lock is None:
                keyword = models.PayloadSchemaType.KEYWORD
                self._client.create_payload_index(self.collection, "tags", field_schema=keyword)
        for start in range(0, len(records), _BATCH):
            points = [
                models.PointStruct(
                    id=_uuid(record.key),
                    vector=[float(value) for value in record.vector],
                    payload={**json.loads(record.document), "tags": record.tags},
                )
                for record in records[start : start + _BATCH]
            ]
            self._client.upsert(self.collection, points=points, wait=True)

    def _held(self, points: Sequence[str], *, payload: bool, vectors: bool = False) -> list[Any]:
        if not points or not self._exists():
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

    def _nearest(self, asked: Any, groups: list[list[str]], limit: int) -> list[Row]:
        models = self._models
        must = [models.FieldCondition(key="tags", match=models.MatchAny(any=list(group))) for group in groups]
        found = self._client.query_points(
            self.collection,
            query=[float(value) for value in asked],
            query_filter=models.Filter(must=must) if must else None,
            limit=limit,
            with_payload=True,
            with_vectors=True,
            # Local mode is always exact, and warns when told to be.
            search_params=None if self._lock else models.SearchParams(exact=True),
        )
        return [Row(_document(point.payload), float(point.score), point.vector) for point in found.points]


def point_id(id: str) -> str:
    """Return the UUID under which Qdrant knows a document."""
    return _uuid(key_of(id))


def _uuid(key: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, key))


def _document(payload: Any) -> str:
    return json.dumps({name: payload[name] for name in ("id", "text", "metadata")})
