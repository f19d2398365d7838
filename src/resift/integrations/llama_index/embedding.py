"""ResiftEmbedding: the bi-encoder of this machine as a LlamaIndex embedding."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from resift._internal.sync import run_sync
from resift.models.embedding import DEFAULT_EMBEDDER, Embedder, EmbedKind


class ResiftEmbedding(BaseEmbedding):
    """Unit vectors from a model on this machine; queries get the model's own prefix."""

    _embedder: Embedder = PrivateAttr()

    def __init__(self, model_name: str = DEFAULT_EMBEDDER, **options: Any) -> None:
        super().__init__(model_name=model_name, **options)
        self._embedder = Embedder(model_name)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex knows it."""
        return "ResiftEmbedding"

    async def _vectors(self, texts: list[str], kind: EmbedKind) -> list[list[float]]:
        vectors: list[list[float]] = (await self._embedder.embed(texts, kind=kind)).tolist()
        return vectors

    def _get_query_embedding(self, query: str) -> list[float]:
        return run_sync(self._vectors([query], "query"))[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return run_sync(self._vectors([text], "document"))[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return run_sync(self._vectors(texts, "document"))

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return (await self._vectors([query], "query"))[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return (await self._vectors([text], "document"))[0]

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await self._vectors(texts, "document")
