"""ResiftReranker: LangChain's documents in the order of a Resift reranker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManager, CallbackManager, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import ConfigDict, Field

from resift._internal.sync import run_sync
from resift.integrations.langchain.documents import hits_of, reordered
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.reranking import arerank
from resift.types import JsonObject, Ranking


class ResiftReranker(BaseDocumentCompressor):
    """Reorders documents and keeps the best `top_n` (None: all). Never raises for a reranker that fails.

    `scorer` replaces the cross-encoder of this machine by any other: a hosted one, tiers, your own. Each
    document's metadata gets `relevance_score`, `tier`, `degraded`, `reason` and `why`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: str = DEFAULT_MODEL
    scorer: Any = None
    top_n: int | None = Field(default=3, ge=1)
    deadline_s: float | None = Field(default=None, gt=0)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Return the best documents, best first."""
        manager = CallbackManager.configure(inheritable_callbacks=callbacks)
        run = manager.on_chain_start({"name": type(self).__name__}, _inputs(documents, query))
        try:
            found = reordered(documents, run_sync(self._reranked(query, documents)))
        except BaseException as exc:
            run.on_chain_error(exc)
            raise
        run.on_chain_end({"documents": found})
        return found

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Do the same from async code, without a thread around it."""
        manager = AsyncCallbackManager.configure(inheritable_callbacks=callbacks)
        run = await manager.on_chain_start({"name": type(self).__name__}, _inputs(documents, query))
        try:
            found = reordered(documents, await self._reranked(query, documents))
        except BaseException as exc:
            await run.on_chain_error(exc)
            raise
        await run.on_chain_end({"documents": found})
        return found

    async def _reranked(self, query: str, documents: Sequence[Document]) -> Ranking:
        return await arerank(
            query,
            hits_of(documents),
            k=self.top_n,
            model=self.model,
            scorer=self.scorer,
            deadline_s=self.deadline_s,
        )


def _inputs(documents: Sequence[Document], query: str) -> JsonObject:
    return {"query": query, "documents": list(documents)}
