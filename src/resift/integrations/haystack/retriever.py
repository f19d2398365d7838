"""ResiftRetriever: an index, a store or a pipeline as a Haystack retriever."""

from __future__ import annotations

import os

from haystack import Document, component

from resift._internal.sync import run_sync
from resift.errors import InputError
from resift.index import Index
from resift.integrations.haystack.documents import documents_of
from resift.integrations.haystack.filters import where_of
from resift.integrations.haystack.saving import Saved
from resift.integrations.searching import Searchable, pipeline_over
from resift.pipeline.pipeline import Pipeline
from resift.types import JsonObject


@component
class ResiftRetriever(Saved):
    """Searches `source` and returns the best `top_k` documents.

    `source` is the path of an index file, which can be saved with a pipeline, or an Index, a Pipeline or
    stores. `filters` are Haystack's (comparisons joined by AND) or Resift's: {"page": [1, 2]}.
    """

    saved = ("source", "top_k", "filters", "deadline_s")

    def __init__(
        self,
        source: str | os.PathLike[str] | Searchable,
        *,
        top_k: int = 10,
        filters: JsonObject | None = None,
        deadline_s: float | None = None,
    ) -> None:
        self.source = os.fspath(source) if isinstance(source, os.PathLike) else source
        self.top_k = top_k
        self.filters = filters
        self.deadline_s = deadline_s
        self._opened: Index | None = None
        self._pipeline: Pipeline | None = None

    def warm_up(self) -> None:
        """Open the index."""
        self._searched()

    def close(self) -> None:
        """Close the index, if this component opened it."""
        if self._opened is not None:
            self._opened.close()
        self._opened = self._pipeline = None

    def _searched(self) -> Pipeline:
        if self._pipeline is None:
            if isinstance(self.source, str):
                self._opened = Index(self.source, read_only=True)
            self._pipeline = pipeline_over(self._opened or self.source)
        return self._pipeline

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: JsonObject | None = None, top_k: int | None = None) -> JsonObject:
        """Return the best documents, best first."""
        return run_sync(self._found(query, filters, top_k))

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: JsonObject | None = None, top_k: int | None = None
    ) -> JsonObject:
        """Do the same from async code, without a thread around it."""
        return await self._found(query, filters, top_k)

    async def _found(self, query: str, filters: JsonObject | None, top_k: int | None) -> JsonObject:
        ranking = await self._searched().search(
            query,
            k=self.top_k if top_k is None else top_k,
            where=where_of(self.filters if filters is None else filters),
            deadline_s=self.deadline_s,
        )
        return {"documents": documents_of(ranking)}

    def to_dict(self) -> JsonObject:
        """Return what Haystack saves."""
        if not isinstance(self.source, str):
            raise InputError(
                f"A ResiftRetriever over a {type(self.source).__name__} cannot be saved; give it a path."
            )
        return Saved.to_dict(self)  # `component` makes the class anew, which breaks super()
