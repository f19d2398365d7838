"""ResiftFusionRetriever: several LlamaIndex retrievers as one, fused, reranked, within a deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.retrievers import BaseRetriever

from resift.integrations.llama_index.retriever import ResiftRetriever
from resift.integrations.llama_index.store import llama_index_store
from resift.integrations.searching import fused_pipeline
from resift.protocols import Reranker, Scorer


class ResiftFusionRetriever(ResiftRetriever):
    """Asks all retrievers at the same time and fuses their lists by RRF (or `fuse`, any Resift reranker).

    One that fails or is late costs only itself: `degraded` and `reason` say so, and one that keeps failing is
    not asked for a while. `rerank` takes a scorer for the best of them.
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
        **options: Any,
    ) -> None:
        pipeline = fused_pipeline(retrievers, llama_index_store, fuse=fuse, weights=weights, rerank=rerank)
        super().__init__(pipeline, k=k, deadline_s=deadline_s, **options)
