"""A Haystack retriever, with its embedder where it needs one, as a Resift store."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DocumentStore

from resift.errors import InputError
from resift.integrations.external_store import ExternalStore, Found
from resift.resilience import CircuitBreaker
from resift.types import JsonObject


@runtime_checkable
class Retriever(Protocol):
    """A Haystack retriever component."""

    def run(self, *args: Any, **kwargs: Any) -> JsonObject:
        """Return {"documents": …}."""
        ...


def haystack_store(
    retriever: Retriever | DocumentStore,
    *,
    text_embedder: Any = None,
    name: str = "",
    breaker: CircuitBreaker | None = None,
) -> ExternalStore:
    """Return a store over a retriever by text, or over one by vectors with the component that makes them.

    Haystack's document store in memory is searched by words; every other has retrievers of its own.
    """
    if isinstance(retriever, InMemoryDocumentStore):
        retriever = InMemoryBM25Retriever(retriever)
    if not isinstance(retriever, Retriever):
        raise InputError(f"A {type(retriever).__name__} cannot be asked; pass a retriever that searches it.")
    takes = inspect.signature(retriever.run).parameters
    if "query_embedding" in takes and text_embedder is None:
        raise InputError("This retriever takes a query_embedding; pass the text_embedder that makes it.")

    async def fetch(query: str, k: int) -> Sequence[Found]:
        asked: JsonObject = {"top_k": k} if "top_k" in takes else {}
        if "query_embedding" in takes:
            asked["query_embedding"] = (await _run(text_embedder, text=query))["embedding"]
        else:
            asked["query"] = query
        found = (await _run(retriever, **asked))["documents"]
        return [Found(one.id, one.content or "", one.score, one.meta) for one in found]

    return ExternalStore(name or type(retriever).__name__, fetch, breaker=breaker)


async def _run(component: Any, **inputs: Any) -> JsonObject:
    """Run a component in its own async way, or in a thread where it has none."""
    run_async = getattr(component, "run_async", None)
    outcome = await run_async(**inputs) if run_async else await asyncio.to_thread(component.run, **inputs)
    return dict(outcome)
