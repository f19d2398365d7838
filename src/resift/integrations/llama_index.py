"""LlamaIndex classes: a node postprocessor, retrievers and embeddings; plus LlamaIndex retrievers as stores."""
# ruff: noqa: E402 - the check for the extra comes before the imports that need it

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resift.errors import InputError, require

require("llama_index.core", extra="llama-index")

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index_instrumentation import get_dispatcher

from resift._internal.sync import run_sync
from resift.integrations import external_store as adapters
from resift.integrations.external_store import ExternalStore, Found, HitMetadata, Searchable, embed_lists
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.protocols import Reranker, Scorer, declared_name
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.resilience import CircuitBreaker
from resift.types import JsonObject, JsonValue, Where

__all__ = ["ResiftEmbedding", "ResiftFusionRetriever", "ResiftRerank", "ResiftRetriever", "llama_index_store"]

dispatcher = get_dispatcher(__name__)


Nodes = list[NodeWithScore]


class ResiftRerank(BaseNodePostprocessor):
    """Reranks nodes and keeps the best `top_n` (0: all). Does not raise if a reranker fails.

    `scorer` replaces the local cross-encoder with a hosted, tiered or custom scorer. Nodes are copied. Their metadata
    gets `relevance_score`, `tier`, `degraded`, `reason` and `why`, hidden from language models and embedders.
    """

    model: str = Field(default=DEFAULT_MODEL, description="An allowed cross-encoder.")
    top_n: int = Field(default=3, ge=0, description="Number of nodes to keep; 0 keeps all.")
    deadline_s: float | None = Field(default=None, gt=0, description="Time limit in seconds.")
    scorer: Any = Field(default=None, exclude=True, description="Any Resift scorer instead of the model.")

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex uses."""
        return "ResiftRerank"

    def _postprocess_nodes(self, nodes: Nodes, query_bundle: QueryBundle | None = None) -> Nodes:
        return run_sync(self._apostprocess_nodes(nodes, query_bundle))

    async def _apostprocess_nodes(self, nodes: Nodes, query_bundle: QueryBundle | None = None) -> Nodes:
        if query_bundle is None:
            raise InputError("ResiftRerank needs a query; pass query_str or query_bundle.")
        name, top_n = declared_name(self.scorer) or self.model, self.top_n or len(nodes)
        dispatcher.event(ReRankStartEvent(query=query_bundle, nodes=nodes, top_n=top_n, model_name=name))
        texts = [(_node_text(node.node), node.node.metadata) for node in nodes]
        options = {"k": self.top_n or None, "model": self.model, "scorer": self.scorer, "deadline_s": self.deadline_s}
        options["source"] = "llama-index"
        reranked = []
        for node, added in await adapters.rerank_items(query_bundle.query_str, nodes, texts, **options):
            # An unscored node keeps its original score.
            score = node.score if added["relevance_score"] is None else added["relevance_score"]
            reranked.append(NodeWithScore(node=_add_metadata(node.node, added), score=score))
        dispatcher.event(ReRankEndEvent(nodes=reranked))
        return reranked


class ResiftRetriever(BaseRetriever):
    """Searches `source` (an Index, a Pipeline, or one or more stores) and returns the best k nodes."""

    def __init__(
        self,
        source: Searchable,
        *,
        k: int = 10,
        where: Where | None = None,
        deadline_s: float | None = None,
        **options: JsonValue,
    ) -> None:
        super().__init__(**options)
        self._pipeline = adapters.make_pipeline(source)
        self._search: JsonObject = {"k": k, "where": where, "deadline_s": deadline_s}

    def _retrieve(self, query_bundle: QueryBundle) -> Nodes:
        return run_sync(self._aretrieve(query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> Nodes:
        ranking = await self._pipeline.search(query_bundle.query_str, **self._search)
        nodes = []
        for hit, added in adapters.hits_with_metadata(ranking):
            node = TextNode(id_=hit.id, text=hit.text, metadata=dict(hit.metadata))
            nodes.append(NodeWithScore(node=_add_metadata(node, added), score=hit.score))
        return nodes


class ResiftFusionRetriever(ResiftRetriever):
    """Queries several retrievers concurrently and fuses their results with RRF (or `fuse`).

    Results of a retriever that fails or times out are missing; `degraded` and `reason` report this. A retriever
    that keeps failing is skipped for a while. `rerank` takes a scorer that reranks the best results.
    """

    def __init__(
        self,
        retrievers: Mapping[str, BaseRetriever] | Sequence[BaseRetriever],
        *,
        k: int = 10,
        fuse: Reranker | None = None,
        weights: Sequence[float] | None = None,
        rerank: Scorer | None = None,
        deadline_s: float | None = None,
        **options: JsonValue,
    ) -> None:
        stages: JsonObject = {"fuse": fuse, "weights": weights, "rerank": rerank}
        pipeline = adapters.make_fusion_pipeline(retrievers, llama_index_store, **stages)
        super().__init__(pipeline, k=k, deadline_s=deadline_s, **options)


class ResiftEmbedding(BaseEmbedding):
    """Unit vectors from a local model. Queries get the model's query prefix."""

    _embedder: Embedder = PrivateAttr()

    def __init__(self, model_name: str = DEFAULT_EMBEDDER, **options: JsonValue) -> None:
        super().__init__(model_name=model_name, **options)
        self._embedder = Embedder(model_name)

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex uses."""
        return "ResiftEmbedding"

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return (await embed_lists(self._embedder, [query], "query"))[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return (await self._aget_text_embeddings([text]))[0]

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await embed_lists(self._embedder, texts, "document")

    def _get_query_embedding(self, query: str) -> list[float]:
        return run_sync(self._aget_query_embedding(query))

    def _get_text_embedding(self, text: str) -> list[float]:
        return run_sync(self._aget_text_embedding(text))

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return run_sync(self._aget_text_embeddings(texts))


def llama_index_store(
    retriever: BaseRetriever, *, name: str = "", breaker: CircuitBreaker | None = None
) -> ExternalStore:
    """Return a store that uses a retriever and, if available, its scores."""
    if not isinstance(retriever, BaseRetriever):
        raise InputError(f"A {type(retriever).__name__} is not a retriever; pass index.as_retriever().")

    async def fetch(query: str, _k: int) -> Sequence[Found]:
        return [
            Found(result.node.node_id, _node_text(result.node), result.score, result.node.metadata)
            for result in await retriever.aretrieve(query)
        ]

    return ExternalStore(name or type(retriever).__name__, fetch, breaker=breaker)


_HIDDEN = ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys")


def _node_text(node: BaseNode) -> str:
    """Return the text for the reranker, without metadata."""
    return node.get_content(metadata_mode=MetadataMode.NONE)


def _add_metadata(node: BaseNode, metadata: HitMetadata) -> BaseNode:
    """Return a copy of the node with added metadata, hidden from language models and embedders."""
    hidden = {name: [*getattr(node, name), *metadata] for name in _HIDDEN}
    return node.model_copy(update={"metadata": {**node.metadata, **metadata}, **hidden})
