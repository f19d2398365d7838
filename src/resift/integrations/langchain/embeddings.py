"""ResiftEmbeddings: the bi-encoder of this machine as LangChain embeddings."""

from __future__ import annotations

from pathlib import Path

from langchain_core.embeddings import Embeddings

from resift._internal.sync import run_sync
from resift.models.embedding import DEFAULT_EMBEDDER, Embedder


class ResiftEmbeddings(Embeddings):
    """Unit vectors from a model on this machine; queries get the model's own prefix."""

    def __init__(self, model: str = DEFAULT_EMBEDDER, *, folder: Path | str | None = None) -> None:
        self.model = model
        self._embedder = Embedder(model, folder=folder)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text."""
        return run_sync(self.aembed_documents(texts))

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a question."""
        return run_sync(self.aembed_query(text))

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Do what `embed_documents` does, from async code."""
        vectors: list[list[float]] = (await self._embedder.embed(texts, kind="document")).tolist()
        return vectors

    async def aembed_query(self, text: str) -> list[float]:
        """Do what `embed_query` does, from async code."""
        vector: list[float] = (await self._embedder.embed([text], kind="query"))[0].tolist()
        return vector
