"""What a pipeline looks like when nothing is configured."""

from __future__ import annotations

from typing import Any

from resift.errors import StoreError
from resift.pipeline.over_fetch import OverFetch
from resift.pipeline.shaping import Shape
from resift.pipeline.stages import AdaptiveDepth, Rerank
from resift.protocols import DocStore, OpensVectors
from resift.ranking.fusion.weighted import WeightedReranker
from resift.rerankers.cross_encoder import (
    PIPELINE_FIRST_PASS,
    PIPELINE_MAX_WINDOWS,
    CrossEncoderReranker,
)
from resift.types import Hit, JsonObject, Where

FETCH = OverFetch(factor=30, minimum=300, cap=1000)
"""How much each store is asked for: z-scores of longer lists are steadier, for 5 ms more than 100."""


def default_options(store: Any, *, rerank: bool) -> JsonObject:
    """Return the arguments of the default `Pipeline` for a store."""
    options: JsonObject = {"stores": views(store), "fuse": WeightedReranker(), "fetch": FETCH}
    if rerank:
        scorer = CrossEncoderReranker(
            max_windows=PIPELINE_MAX_WINDOWS, first_pass_windows=PIPELINE_FIRST_PASS, lazy=True
        )
        options["rerank"] = Rerank(scorer, depth=AdaptiveDepth())
        options["guard"] = Shape(name="guard")
    return options


def views(store: Any) -> list[Any]:
    """Return the two ways of finding of a store, `text` and `vectors`, where it has both; else itself."""
    mode = getattr(store, "mode", "")
    if mode == "text":
        unused = _unused_vectors(store)
        return [store] if unused is None else [store.text, unused]
    if mode not in ("hybrid", "vector"):
        return [store]
    sides = [getattr(store, side, None) for side in ("text", "vectors")]
    found = [side for side in sides if isinstance(side, DocStore)]
    return found if len(found) == len(sides) else [store]


def _unused_vectors(store: Any) -> Any:
    """Return the vectors of a file that was opened without its embedder; None where it has none."""
    named = store.facts().embedder if isinstance(store, OpensVectors) else None
    if not named:
        return None
    from resift.models.embedder import Embedder

    try:
        return store.vectors_by(Embedder(named))
    except ValueError as exc:
        return _Unavailable(f"{store.name}.vectors", f"{store.path} was built with {named}: {exc}")


class _Unavailable:
    """A view that cannot be asked: the fan-out then says so, and what to do."""

    kind = "vector"

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        raise StoreError(f"{self.reason} Open the store with that embedder.", store=self.name)
