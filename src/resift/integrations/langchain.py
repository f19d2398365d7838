"""LangChain classes: a reranker, retrievers and embeddings; plus LangChain retrievers as stores."""
# ruff: noqa: E402 - the check for the extra comes before the imports that need it

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resift.errors import InputError, require

require("langchain_core", extra="langchain")

from langchain_core import callbacks as lc
from langchain_core.callbacks import AsyncCallbackManager, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field, PrivateAttr

from resift._internal.sync import run_sync
from resift.external.candidates import content_id
from resift.integrations import external_store as adapters
from resift.integrations.external_store import ExternalStore, Found, Searchable, embed_lists
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.pipeline.pipeline import Pipeline
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.resilience import CircuitBreaker
from resift.types import JsonMapping, JsonValue, Where

__all__ = ["ResiftEmbeddings", "ResiftFusionRetriever", "ResiftReranker", "ResiftRetriever", "langchain_store"]


class ResiftReranker(BaseDocumentCompressor):
    """Reranks documents and keeps the best `top_n` (None: all). Does not raise if a reranker fails.

    `scorer` replaces the local cross-encoder with a hosted, tiered or custom scorer. Each document's
    metadata gets `relevance_score`, `tier`, `degraded`, `reason` and `why`. Documents are copied.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: str = DEFAULT_MODEL
    scorer: Any = None
    top_n: int | None = Field(default=3, ge=1)
    deadline_s: float | None = Field(default=None, gt=0)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Return the best documents, best first."""
        return run_sync(self.acompress_documents(documents, query, callbacks))

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Return the best documents, best first."""
        manager = AsyncCallbackManager.configure(inheritable_callbacks=callbacks)
        inputs = {"query": query, "documents": list(documents)}
        run = await manager.on_chain_start({"name": type(self).__name__}, inputs)
        texts = [(document.page_content, document.metadata) for document in documents]
        options = {"k": self.top_n, "model": self.model, "scorer": self.scorer, "deadline_s": self.deadline_s}
        try:
            reranked = await adapters.rerank_items(query, documents, texts, source="langchain", **options)
        except BaseException as exc:
            await run.on_chain_error(exc)
            raise
        copies = [
            Document(page_content=document.page_content, metadata={**document.metadata, **added}, id=document.id)
            for document, added in reranked
        ]
        await run.on_chain_end({"documents": copies})
        return copies


class SearchingRetriever(BaseRetriever):
    """Base class of the retrievers. Searches a pipeline with k, a filter and a deadline."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    k: int = Field(default=10, ge=0)
    where: Where | None = None
    deadline_s: float | None = Field(default=None, gt=0)

    @abstractmethod
    def _pipeline(self) -> Pipeline: ...

    def _get_relevant_documents(
        self, query: str, *, run_manager: lc.CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return run_sync(self._search(query, k))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: lc.AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return await self._search(query, k)

    async def _search(self, query: str, k: int | None) -> list[Document]:
        limit = self.k if k is None else k
        ranking = await self._pipeline().search(query, k=limit, where=self.where, deadline_s=self.deadline_s)
        hits = adapters.hits_with_metadata(ranking)
        return [Document(page_content=hit.text, metadata={**hit.metadata, **more}, id=hit.id) for hit, more in hits]


class ResiftRetriever(SearchingRetriever):
    """Searches `source` (an Index, a Pipeline, or one or more stores) and returns the best k documents.

    Documents have the ids and metadata of the hits, plus `relevance_score`, `tier`, `degraded`, `reason` and `why`.
    """

    source: Searchable
    _cached: Pipeline | None = PrivateAttr(default=None)

    def _pipeline(self) -> Pipeline:
        # Create the pipeline once, so its circuit breakers and models keep their state.
        if self._cached is None:
            self._cached = adapters.make_pipeline(self.source)
        return self._cached


class ResiftFusionRetriever(SearchingRetriever):
    """Queries several retrievers concurrently and fuses their results with RRF (or `fuse`).

    Results of a retriever that fails or times out are missing; `degraded` and `reason` report this. A retriever
    that keeps failing is skipped for a while. `rerank` takes a scorer that reranks the best results.
    `retrievers` is a list of retrievers and vector stores, or a mapping from names to them.
    """

    retrievers: JsonMapping | Sequence[JsonValue]
    fuse: Any = None
    weights: Sequence[float] | None = None
    rerank: Any = None
    _fused: Pipeline = PrivateAttr()

    def model_post_init(self, context: object, /) -> None:
        """Build the pipeline once, so its circuit breakers keep their state."""
        super().model_post_init(context)
        options = {"fuse": self.fuse, "weights": self.weights, "rerank": self.rerank}
        self._fused = adapters.make_fusion_pipeline(self.retrievers, langchain_store, **options)

    def _pipeline(self) -> Pipeline:
        return self._fused


class ResiftEmbeddings(Embeddings):
    """Unit vectors from a local model. Queries get the model's query prefix."""

    def __init__(self, model: str = DEFAULT_EMBEDDER, *, folder: Path | str | None = None) -> None:
        self.model = model
        self._embedder = Embedder(model, folder=folder)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text."""
        return run_sync(self.aembed_documents(texts))

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        return run_sync(self.aembed_query(text))

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text."""
        return await embed_lists(self._embedder, texts, "document")

    async def aembed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        return (await embed_lists(self._embedder, [text], "query"))[0]


Source = BaseRetriever | VectorStore


def langchain_store(source: Source, *, name: str = "", breaker: CircuitBreaker | None = None) -> ExternalStore:
    """Return a store that uses a vector store (with its scores) or a retriever (with its order only)."""
    if not isinstance(source, (BaseRetriever, VectorStore)):
        raise InputError(f"A {type(source).__name__} is not a LangChain retriever or vector store.")
    has_scores = isinstance(source, VectorStore)

    async def fetch(query: str, k: int) -> Sequence[Found]:
        nonlocal has_scores
        if isinstance(source, BaseRetriever):
            return [_to_found(document, None) for document in await source.ainvoke(query)]
        if has_scores:
            try:
                pairs = await source.asimilarity_search_with_relevance_scores(query, k)
                return [_to_found(document, float(score)) for document, score in pairs]
            except NotImplementedError:
                has_scores = False  # some vector stores return an order without relevance scores
        documents = await asyncio.to_thread(source.similarity_search, query, k)
        return [_to_found(document, None) for document in documents]

    return ExternalStore(name or type(source).__name__, fetch, breaker=breaker)


def _to_found(document: Document, score: float | None) -> Found:
    text = document.page_content
    return Found(document.id or content_id(text), text, score, document.metadata)
