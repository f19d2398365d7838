"""A Chroma collection as a Resift store: found by Chroma's own vectors, filtered by Chroma itself."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from resift.errors import InputError
from resift.integrations.external_store import ExternalStore, Found
from resift.resilience import CircuitBreaker
from resift.types import JsonMapping, JsonObject, JsonValue


@runtime_checkable
class Collection(Protocol):
    """What is needed of a Chroma collection, of a client or an async client."""

    name: str

    def query(self, *, query_texts: list[str], n_results: int, include: list[str]) -> JsonValue:
        """Return ids, documents, metadatas and distances, a list per query text."""
        ...


def chroma_store(
    collection: Collection, *, name: str = "", breaker: CircuitBreaker | None = None
) -> ExternalStore:
    """Return a store over a collection; scores are −distance, so that larger is better."""
    if not isinstance(collection, Collection):
        raise InputError(
            f"A {type(collection).__name__} is no Chroma collection; pass client.get_collection(…)."
        )

    async def fetch(query: str, k: int) -> Sequence[Found]:
        asked: JsonObject = {
            "query_texts": [query],
            "n_results": k,
            "include": ["documents", "metadatas", "distances"],
        }
        if inspect.iscoroutinefunction(collection.query):
            return _rows(await collection.query(**asked))
        return _rows(await asyncio.to_thread(lambda: collection.query(**asked)))

    return ExternalStore(name or f"chroma.{collection.name}", fetch, breaker=breaker)


def _rows(found: JsonMapping) -> list[Found]:
    columns = [(found.get(key) or [[]])[0] for key in ("ids", "documents", "metadatas", "distances")]
    ids, texts, metadata, distances = columns
    return [
        Found(id, text or "", -float(distance), dict(about or {}))
        for id, text, about, distance in zip(ids, texts, metadata, distances, strict=True)
    ]
