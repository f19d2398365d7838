"""ResiftRanker: Haystack's documents in the order of a Resift reranker."""

from __future__ import annotations

from haystack import Document, component

from resift._internal.sync import run_sync
from resift.errors import InputError
from resift.integrations.haystack.documents import hits_of, reordered
from resift.integrations.haystack.saving import Saved
from resift.plugins import load_reranker
from resift.protocols import Scorer
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.reranking import arerank
from resift.types import JsonMapping, JsonObject


@component
class ResiftRanker(Saved):
    """Reorders documents and keeps the best `top_k`. Never raises for a reranker that fails.

    `reranker` names any Resift reranker ("voyage", "tei", …) with its `reranker_options`, so that a pipeline
    with it can be saved as YAML; `scorer` takes an object instead, which cannot be saved. The key of a hosted
    one comes from its environment variable and is never written. Documents get `relevance_score`, `tier`,
    `degraded`, `reason` and `why` in their meta.
    """

    saved = ("model", "top_k", "deadline_s", "meta_fields_to_embed", "reranker", "reranker_options")

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        top_k: int = 10,
        deadline_s: float | None = None,
        meta_fields_to_embed: list[str] | None = None,
        reranker: str | None = None,
        reranker_options: JsonMapping | None = None,
        scorer: Scorer | None = None,
    ) -> None:
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; keep 1 document or more.")
        self.model = model
        self.top_k = top_k
        self.deadline_s = deadline_s
        self.meta_fields_to_embed = list(meta_fields_to_embed or ())
        self.reranker = reranker
        self.reranker_options = dict(reranker_options or {})
        self.scorer = scorer
        self._loaded: Scorer | None = scorer

    def warm_up(self) -> None:
        """Load the reranker, so that the first question does not wait for it."""
        if self._loaded is None and self.reranker is not None:
            self._loaded = load_reranker(self.reranker, **self.reranker_options)
        if self._loaded is None:
            run_sync(arerank("warm up", ["warm up"], model=self.model))

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> JsonObject:
        """Return the best documents, best first."""
        return run_sync(self._ranked(query, documents, top_k))

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, documents: list[Document], top_k: int | None = None) -> JsonObject:
        """Do the same from async code, without a thread around it."""
        return await self._ranked(query, documents, top_k)

    async def _ranked(self, query: str, documents: list[Document], top_k: int | None) -> JsonObject:
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k is {top_k}; keep 1 document or more.")
        if not documents:
            return {"documents": []}
        if self._loaded is None and self.reranker is not None:
            self._loaded = load_reranker(self.reranker, **self.reranker_options)
        ranking = await arerank(
            query,
            hits_of(documents, meta_fields=self.meta_fields_to_embed),
            k=top_k or self.top_k,
            model=self.model,
            scorer=self._loaded,
            deadline_s=self.deadline_s,
        )
        return {"documents": reordered(documents, ranking)}

    def to_dict(self) -> JsonObject:
        """Return what Haystack saves."""
        if self.scorer is not None:
            raise InputError("A ResiftRanker with a scorer object cannot be saved; name it with reranker=….")
        return Saved.to_dict(self)  # `component` makes the class anew, which breaks super()
