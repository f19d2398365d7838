"""Any LangChain retriever or vector store as a Resift store: nothing has to be indexed again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore

from resift.errors import InputError
from resift.integrations.external_store import ExternalStore, Found
from resift.integrations.langchain.documents import document_id
from resift.resilience import CircuitBreaker


def langchain_store(
    source: BaseRetriever | VectorStore, *, name: str = "", breaker: CircuitBreaker | None = None
) -> ExternalStore:
    """Return a store over a vector store (with its scores) or a retriever (with its order alone)."""
    label = name or type(source).__name__
    if isinstance(source, BaseRetriever):
        return ExternalStore(label, _Retriever(source), breaker=breaker)
    if isinstance(source, VectorStore):
        return ExternalStore(label, _VectorStore(source), breaker=breaker)
    raise InputError(f"A {type(source).__name__} is no LangChain retriever or vector store.")


class _Retriever:
    """A retriever returns as many as it was made for; what is more than k is cut by the store."""

    def __init__(self, retriever: BaseRetriever) -> None:
        self._retriever = retriever

    async def __call__(self, query: str, k: int) -> Sequence[Found]:
        # Without a score the order alone counts, as fusion by ranks needs no more.
        return [_found(document, None) for document in await self._retriever.ainvoke(query)]


class _VectorStore:
    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self._scored = True

    async def __call__(self, query: str, k: int) -> Sequence[Found]:
        if self._scored:
            try:
                pairs = await self._store.asimilarity_search_with_relevance_scores(query, k)
                return [_found(document, float(score)) for document, score in pairs]
            except NotImplementedError:
                # Some vector stores cannot say how relevant; they still give an order.
                self._scored = False
        found = await asyncio.to_thread(self._store.similarity_search, query, k)
        return [_found(document, None) for document in found]


def _found(document: Document, score: float | None) -> Found:
    return Found(document_id(document), document.page_content, score, document.metadata)
