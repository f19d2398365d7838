"""ResiftRetriever: an Index, a store or a pipeline as a LangChain retriever."""

from __future__ import annotations

from abc import abstractmethod

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field, PrivateAttr

from resift._internal.sync import run_sync
from resift.integrations.langchain.documents import documents_of
from resift.integrations.searching import Searchable, pipeline_over
from resift.pipeline.pipeline import Pipeline
from resift.types import Where


class SearchingRetriever(BaseRetriever):
    """What our retrievers share: k, a filter, a deadline, and one way to ask a pipeline, sync and async."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    k: int = Field(default=10, ge=0)
    where: Where | None = None
    deadline_s: float | None = Field(default=None, gt=0)

    @abstractmethod
    def _pipeline(self) -> Pipeline: ...

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return run_sync(self._found(query, k))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return await self._found(query, k)

    async def _found(self, query: str, k: int | None) -> list[Document]:
        wanted = self.k if k is None else k
        ranking = await self._pipeline().search(query, k=wanted, where=self.where, deadline_s=self.deadline_s)
        return documents_of(ranking)


class ResiftRetriever(SearchingRetriever):
    """Searches `source` (an Index, a Pipeline, a store or several) and returns the best k documents.

    Ids and metadata are the hits' own; `relevance_score`, `tier`, `degraded`, `reason` and `why` are added.
    """

    source: Searchable
    _made: Pipeline | None = PrivateAttr(default=None)

    def _pipeline(self) -> Pipeline:
        # Made once: breakers and models of a pipeline remember what they met.
        if self._made is None:
            self._made = pipeline_over(self.source)
        return self._made
