"""LangChain: a reranker, a retriever, one that fuses, embeddings, and any of its retrievers as a store."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.integrations.langchain.embeddings import ResiftEmbeddings as ResiftEmbeddings
    from resift.integrations.langchain.fusion_retriever import ResiftFusionRetriever as ResiftFusionRetriever
    from resift.integrations.langchain.reranker import ResiftReranker as ResiftReranker
    from resift.integrations.langchain.retriever import ResiftRetriever as ResiftRetriever
    from resift.integrations.langchain.store import langchain_store as langchain_store
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        embeddings: ResiftEmbeddings
        fusion_retriever: ResiftFusionRetriever
        reranker: ResiftReranker
        retriever: ResiftRetriever
        store: langchain_store
        """,
    )
