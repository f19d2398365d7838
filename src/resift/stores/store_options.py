"""Options that several stores share."""

from __future__ import annotations

from dataclasses import dataclass

from resift.models.embedder import NO_EMBEDDER, EmbedderOptions, embedding_models
from resift.stores.memory import Mode
from resift.validation import option


@dataclass(frozen=True, kw_only=True)
class SearchOptions(EmbedderOptions):
    """How a store finds."""

    embedder: str | None = option(
        "Model that turns the question into a vector: a model's id, or `none` to search by words only.",
        default=None,
        choices=lambda: [NO_EMBEDDER, *embedding_models()],
    )
    mode: Mode | None = option("How the store finds: by words, by vectors, or by both.", default=None)
    exact: bool | None = option("Compare every vector, also where an index would be quicker.", default=None)
