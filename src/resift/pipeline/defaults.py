"""The default pipeline."""

from __future__ import annotations

from typing import Any

from resift.errors import StoreError
from resift.pipeline.fan_out import OverFetch, Store
from resift.pipeline.stages import AdaptiveDepth, Rerank, Shape
from resift.protocols import CanReopenVectors, DocStore
from resift.ranking.fusion.weighted import WeightedReranker
from resift.rerankers.cross_encoder import (
    DEFAULT_MODEL,
    PIPELINE_FIRST_PASS,
    PIPELINE_MAX_WINDOWS,
    CrossEncoderReranker,
)
from resift.types import Hit, JsonObject, Where

FETCH = OverFetch(factor=30, minimum=300, cap=1000)
"""Number of candidates per store. Longer lists give more stable z-scores."""


def default_options(store: Store, *, rerank: bool, reranker: str | None = None) -> JsonObject:
    """Return the arguments of the default `Pipeline` for a store; `reranker` selects another cross-encoder."""
    options: JsonObject = {"stores": views(store), "fuse": WeightedReranker(), "fetch": FETCH}
    if rerank:
        scorer = CrossEncoderReranker(
            reranker or DEFAULT_MODEL,
            max_windows=PIPELINE_MAX_WINDOWS,
            first_pass_windows=PIPELINE_FIRST_PASS,
            lazy=True,
        )
        options["rerank"] = Rerank(scorer, depth=AdaptiveDepth())
        options["guard"] = Shape(name="guard")
    return options


def views(store: Any) -> list[Any]:
    """Return the views `text` and `vectors` if a store has both, otherwise the store itself."""
    mode = getattr(store, "mode", "")
    if mode == "text":
        vectors = _reopen_vectors(store)
        return [store] if vectors is None else [store.text, vectors]
    if mode not in ("hybrid", "vector"):
        return [store]
    sides = [getattr(store, side, None) for side in ("text", "vectors")]
    return sides if all(isinstance(side, DocStore) for side in sides) else [store]


def _reopen_vectors(store: Any) -> Any:
    """Return a view of the vectors in a file that was opened without its embedder; None without vectors."""
    model = store.metadata().embedder if isinstance(store, CanReopenVectors) else ""
    if not model:
        return None
    from resift.models.embedder import Embedder

    try:
        view = store.with_embedder(Embedder(model))
        view.embedder = Embedder(model)  # declares the languages of the model
        return view
    except ValueError as exc:
        return _UnavailableView(f"{store.name}.vectors", f"{store.path} was built with {model}: {exc}")


class _UnavailableView:
    """A view whose searches fail with a reason, which the ranking then reports."""

    kind = "vector"

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        raise StoreError(f"{self.reason} Open the store with that embedder.", store=self.name)
