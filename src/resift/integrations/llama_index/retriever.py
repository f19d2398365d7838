"""ResiftRetriever: an Index, a store or a pipeline as a LlamaIndex retriever."""

from __future__ import annotations

from typing import Any

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from resift._internal.sync import run_sync
from resift.integrations.llama_index.nodes import nodes_of
from resift.integrations.searching import Searchable, pipeline_over
from resift.types import Where


class ResiftRetriever(BaseRetriever):
    """Searches `source` (an Index, a Pipeline, a store or several) and returns the best k nodes."""

    def __init__(
        self,
        source: Searchable,
        *,
        k: int = 10,
        where: Where | None = None,
        deadline_s: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._pipeline = pipeline_over(source)
        self._k = k
        self._where = where
        self._deadline_s = deadline_s

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return run_sync(self._aretrieve(query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        ranking = await self._pipeline.search(
            query_bundle.query_str, k=self._k, where=self._where, deadline_s=self._deadline_s
        )
        return nodes_of(ranking)
