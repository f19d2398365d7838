"""Any LlamaIndex retriever as a Resift store: nothing has to be indexed again."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.retrievers import BaseRetriever

from resift.errors import InputError
from resift.integrations.external_store import ExternalStore, Found
from resift.integrations.llama_index.nodes import text_of
from resift.resilience import CircuitBreaker


def llama_index_store(
    retriever: BaseRetriever, *, name: str = "", breaker: CircuitBreaker | None = None
) -> ExternalStore:
    """Return a store over a retriever, with its scores where it gives them."""
    if not isinstance(retriever, BaseRetriever):
        raise InputError(
            f"A {type(retriever).__name__} is no LlamaIndex retriever; pass index.as_retriever()."
        )

    async def fetch(query: str, _k: int) -> Sequence[Found]:
        nodes = await retriever.aretrieve(query)
        return [Found(one.node.node_id, text_of(one.node), one.score, one.node.metadata) for one in nodes]

    return ExternalStore(name or type(retriever).__name__, fetch, breaker=breaker)
