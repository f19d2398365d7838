"""Listwise reranking by a chat model: prompt, answer, and the sliding window between them."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.rerankers.llm.scorer import LLMReranker as LLMReranker
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        scorer: LLMReranker
        """,
    )
