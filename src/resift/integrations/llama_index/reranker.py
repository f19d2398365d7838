"""ResiftRerank: LlamaIndex's nodes in the order of a Resift reranker."""

from __future__ import annotations

from typing import Any

from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher

from resift._internal.sync import run_sync
from resift.errors import InputError
from resift.integrations.llama_index.nodes import hits_of, reordered
from resift.protocols import own_name
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.reranking import arerank

dispatcher = get_dispatcher(__name__)


class ResiftRerank(BaseNodePostprocessor):
    """Reorders nodes and keeps the best `top_n` (0: all). Never raises for a reranker that fails.

    `scorer` replaces the cross-encoder of this machine by any other: a hosted one, tiers, your own. Each
    node's metadata gets `relevance_score`, `tier`, `degraded`, `reason` and `why`, hidden from language
    models and embedders.
    """

    model: str = Field(default=DEFAULT_MODEL, description="An allowed cross-encoder.")
    top_n: int = Field(default=3, ge=0, description="How many nodes to keep; 0 keeps all.")
    deadline_s: float | None = Field(default=None, gt=0, description="Answer within so many seconds.")
    scorer: Any = Field(default=None, exclude=True, description="Any Resift scorer instead of the model.")

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex knows it."""
        return "ResiftRerank"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return run_sync(self._apostprocess_nodes(nodes, query_bundle))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise InputError("ResiftRerank needs the question: pass query_str or query_bundle.")
        name = own_name(self.scorer) or self.model
        dispatcher.event(
            ReRankStartEvent(query=query_bundle, nodes=nodes, top_n=self.top_n or len(nodes), model_name=name)
        )
        ranking = await arerank(
            query_bundle.query_str,
            hits_of(nodes),
            k=self.top_n or None,
            model=self.model,
            scorer=self.scorer,
            deadline_s=self.deadline_s,
        )
        found = reordered(nodes, ranking)
        dispatcher.event(ReRankEndEvent(nodes=found))
        return found
