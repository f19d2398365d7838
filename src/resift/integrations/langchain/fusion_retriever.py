"""ResiftFusionRetriever: several LangChain retrievers as one, fused, reranked, within a deadline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import PrivateAttr

from resift.integrations.langchain.retriever import SearchingRetriever
from resift.integrations.langchain.store import langchain_store
from resift.integrations.searching import fused_pipeline
from resift.pipeline.pipeline import Pipeline
from resift.types import JsonMapping


class ResiftFusionRetriever(SearchingRetriever):
    """Asks all retrievers at the same time and fuses their lists by RRF (or `fuse`, any Resift reranker).

    One that fails or is late costs only itself: `degraded` and `reason` say so, and one that keeps failing is
    not asked for a while. `rerank` takes a scorer for the best of them. `retrievers` is a list of retrievers
    and vector stores, or a mapping with a name for each.
    """

    retrievers: JsonMapping | Sequence[Any]
    fuse: Any = None
    weights: Sequence[float] | None = None
    rerank: Any = None
    _fused: Pipeline = PrivateAttr()

    def model_post_init(self, context: object, /) -> None:
        """Build the pipeline once: its breakers remember who failed."""
        super().model_post_init(context)
        self._fused = fused_pipeline(
            self.retrievers, langchain_store, fuse=self.fuse, weights=self.weights, rerank=self.rerank
        )

    def _pipeline(self) -> Pipeline:
        return self._fused
