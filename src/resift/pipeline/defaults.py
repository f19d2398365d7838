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
"""Candidates per store: z-scores of longer lists are more stable."""


def default_options(store: Store, *, rerank: bool, reranker: str | None = None) -> JsonObject:
    """Return the arguments of the default `Pipeline` for a store; `reranker` names another cross-encoder."""
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
    """Return the views `text` and `vectors` of a store that has both, or the store itself."""
    mode = getattr(store, "mode", "")
    if mode == "text":
        vectors = _reopen_vectors(store)
        return [store] if vectors is None else [store.text, vectors]
    if mode not in ("hybrid", "vector"):
        return [store]
    sides = [getattr(store, side, None) for side in ("text", "vectors")]
    return sides if all(isinstance(side, DocStore) for side in sides) else [store]


def _reopen_vectors(store: Any) -> Any:
    """Return the vectors of a file that was opened without its embedder, None if it has none."""
    named = store.metadata().embedder if isinstance(store, CanReopenVectors) else ""
    if not named:
        return None
    from resift.models.embedder import Embedder

    try:
        view = store.with_embedder(Embedder(named))
        view.embedder = Embedder(named)  # tells the languages that it was trained on
        return view
    except ValueError as exc:
        return _UnavailableView(f"{store.name}.vectors", f"{store.path} was built with {named}: {exc}")


class _UnavailableView:
    """A view that fails with the reason, which the ranking then reports."""

    kind = "vector"

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        raise StoreError(f"{self.reason} Open the store with that embedder.", store=self.name)
