"""ResiftTextEmbedder and ResiftDocumentEmbedder: the bi-encoder of this machine as Haystack components."""

from __future__ import annotations

from dataclasses import replace

from haystack import Document, component

from resift._internal.sync import run_sync
from resift.integrations.haystack.saving import Saved
from resift.models.embedding import DEFAULT_EMBEDDER, Embedder, EmbedKind
from resift.types import JsonObject


class _Embedding(Saved):
    """What both embedders share: the model, loading it, saving its name."""

    saved = ("model",)

    def __init__(self, model: str = DEFAULT_EMBEDDER) -> None:
        self.model = model
        self._embedder = Embedder(model)

    def warm_up(self) -> None:
        """Load the model, so that the first call does not wait for it."""
        _ = self._embedder.dimension

    async def _vectors(self, texts: list[str], kind: EmbedKind) -> list[list[float]]:
        vectors: list[list[float]] = (await self._embedder.embed(texts, kind=kind)).tolist()
        return vectors


@component
class ResiftTextEmbedder(_Embedding):
    """The vector of a question; it gets the model's own prefix for questions."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> JsonObject:
        """Return the vector."""
        return run_sync(self._embedded(text))

    @component.output_types(embedding=list[float])
    async def run_async(self, text: str) -> JsonObject:
        """Do the same from async code."""
        return await self._embedded(text)

    async def _embedded(self, text: str) -> JsonObject:
        return {"embedding": (await self._vectors([text], "query"))[0]}


@component
class ResiftDocumentEmbedder(_Embedding):
    """Copies of documents with their vectors."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> JsonObject:
        """Return the documents with their vectors."""
        return run_sync(self._embedded(documents))

    @component.output_types(documents=list[Document])
    async def run_async(self, documents: list[Document]) -> JsonObject:
        """Do the same from async code."""
        return await self._embedded(documents)

    async def _embedded(self, documents: list[Document]) -> JsonObject:
        vectors = await self._vectors([document.content or "" for document in documents], "document")
        pairs = zip(documents, vectors, strict=True)
        return {"documents": [replace(document, embedding=vector) for document, vector in pairs]}
