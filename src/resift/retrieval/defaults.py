"""What a pipeline looks like when nothing is configured."""

from __future__ import annotations

from typing import Any

from resift.plugins import load_reranker
from resift.retrieval.shaping import Shape
from resift.retrieval.stages import Rerank

DEPTH = 20
"""How many of the fused hits the cross-encoder reads: the knee of quality against time."""


def default_options(store: Any, *, rerank: bool) -> dict[str, Any]:
    """Return the arguments of the default `Pipeline` for a store."""
    options: dict[str, Any] = {"stores": views(store)}
    if rerank:
        options["rerank"] = Rerank(load_reranker("cross-encoder"), depth=DEPTH)
        options["guard"] = Shape(name="guard")
    return options


def views(store: Any) -> list[Any]:
    """Return the two ways of finding of a hybrid store, `text` and `vectors`; else the store itself."""
    if getattr(store, "mode", "") != "hybrid":
        return [store]
    sides = [getattr(store, side, None) for side in ("text", "vectors")]
    found = [side for side in sides if callable(getattr(side, "search", None))]
    return found if len(found) == len(sides) else [store]
