"""Haystack: a ranker, a retriever, a joiner, embedders of texts and documents, its retrievers as stores."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.integrations.haystack.embedders import ResiftDocumentEmbedder as ResiftDocumentEmbedder
    from resift.integrations.haystack.embedders import ResiftTextEmbedder as ResiftTextEmbedder
    from resift.integrations.haystack.joiner import ResiftJoiner as ResiftJoiner
    from resift.integrations.haystack.ranker import ResiftRanker as ResiftRanker
    from resift.integrations.haystack.retriever import ResiftRetriever as ResiftRetriever
    from resift.integrations.haystack.store import haystack_store as haystack_store
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        embedders: ResiftDocumentEmbedder ResiftTextEmbedder
        joiner: ResiftJoiner
        ranker: ResiftRanker
        retriever: ResiftRetriever
        store: haystack_store
        """,
    )
