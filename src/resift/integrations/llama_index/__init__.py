"""LlamaIndex: a node postprocessor, a retriever, one that fuses, embeddings, and its retrievers as stores."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.integrations.llama_index.embedding import ResiftEmbedding as ResiftEmbedding
    from resift.integrations.llama_index.fusion_retriever import (
        ResiftFusionRetriever as ResiftFusionRetriever,
    )
    from resift.integrations.llama_index.reranker import ResiftRerank as ResiftRerank
    from resift.integrations.llama_index.retriever import ResiftRetriever as ResiftRetriever
    from resift.integrations.llama_index.store import llama_index_store as llama_index_store
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        embedding: ResiftEmbedding
        fusion_retriever: ResiftFusionRetriever
        reranker: ResiftRerank
        retriever: ResiftRetriever
        store: llama_index_store
        """,
    )
