"""An Elasticsearch or OpenSearch index as a Resift store: words, vectors or both, over its HTTP API."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from resift.errors import InputError, StoreError
from resift.integrations.external_store import ExternalStore, Found
from resift.protocols import Embedder
from resift.resilience import CircuitBreaker
from resift.types import JsonMapping, JsonObject, JsonValue
from resift.validation import check_arguments

Engine = Literal["elasticsearch", "opensearch"]
Mode = Literal["text", "vector", "hybrid"]


class Client(Protocol):
    """What is needed of the official clients, sync or async: one search."""

    def search(self, *, index: str, body: JsonMapping) -> JsonValue:
        """Return the answer of `_search`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """Which field of the index holds what; `metadata` None takes every other field of the document."""

    text: str = "text"
    vector: str = "embedding"
    metadata: str | None = "metadata"


@check_arguments
def elasticsearch_store(
    client: Client,
    index: str,
    *,
    mode: Mode = "text",
    embedder: Embedder | None = None,
    engine: Engine = "elasticsearch",
    fields: Fields = Fields(),
    name: str = "",
    breaker: CircuitBreaker | None = None,
) -> ExternalStore:
    """Return a store over an index. `vector` and `hybrid` need the embedder that filled the vector field.

    Hybrid adds the engine's word score and its vector score in one query, as both engines do by themselves;
    to fuse by ranks instead, make one store for words and one for vectors.
    """
    if mode != "text" and embedder is None:
        raise InputError(f"mode {mode!r} needs the embedder that filled {fields.vector!r}; pass embedder=….")

    is_async = _is_async(client)

    async def fetch(query: str, k: int) -> Sequence[Found]:
        vector = None if mode == "text" or embedder is None else await _vector(embedder, query)
        body = _body(query, vector, k, mode=mode, engine=engine, fields=fields)
        if is_async:
            found = await client.search(index=index, body=body)
        else:
            found = await asyncio.to_thread(client.search, index=index, body=body)
        _refuse_partial(found)
        return [_found(hit, fields) for hit in found["hits"]["hits"]]

    return ExternalStore(name or f"{engine}.{index}", fetch, breaker=breaker)


def _body(
    query: str, vector: list[float] | None, k: int, *, mode: Mode, engine: Engine, fields: Fields
) -> JsonObject:
    words = {"match": {fields.text: {"query": query}}}
    body: JsonObject = {"size": k, "_source": {"excludes": [fields.vector]}}
    if vector is None:
        return {**body, "query": words}
    if engine == "opensearch":
        nearest = {"knn": {fields.vector: {"vector": vector, "k": k}}}
        both = {"bool": {"should": [words, nearest]}}
        return {**body, "query": nearest if mode == "vector" else both}
    knn = {
        "field": fields.vector,
        "query_vector": vector,
        "k": k,
        "num_candidates": min(10_000, max(100, 2 * k)),
    }
    return {**body, "knn": knn} if mode == "vector" else {**body, "knn": knn, "query": words}


def _refuse_partial(found: JsonMapping) -> None:
    """Raise for an answer from some shards, or from what was found in time: it looks like a whole one."""
    shards = found.get("_shards") or {}
    if shards.get("failed"):
        raise StoreError(f"{shards['failed']} of {shards.get('total', '?')} shards of the index failed.")
    if found.get("timed_out"):
        raise StoreError("The index answered with part of its hits, for its time was over.", transient=True)


def _found(hit: JsonMapping, fields: Fields) -> Found:
    source = dict(hit.get("_source") or {})
    if fields.text not in source:
        raise StoreError(
            f"{hit['_id']!r} has no field {fields.text!r}; name the right one with Fields(text=…)."
        )
    text = str(source.pop(fields.text) or "")
    metadata = source if fields.metadata is None else source.get(fields.metadata) or {}
    score = hit.get("_score")
    return Found(str(hit["_id"]), text, None if score is None else float(score), metadata)


async def _vector(embedder: Embedder, query: str) -> list[float]:
    rows = await embedder.embed([query], kind="query")
    return [float(value) for value in rows[0]]


def _is_async(client: Client) -> bool:
    # The official clients wrap their methods; only what is inside says whether it must be awaited.
    return inspect.iscoroutinefunction(inspect.unwrap(client.search))
