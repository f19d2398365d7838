"""From a question to one ranked list: fan-out over stores, two-stage search, pipelines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resift.retrieval.fan_out import Transition as Transition
    from resift.retrieval.node import RetrievalNode as RetrievalNode
    from resift.retrieval.over_fetch import OverFetch as OverFetch
    from resift.retrieval.pipeline import Pipeline as Pipeline
    from resift.retrieval.pool import Pool as Pool
    from resift.retrieval.pool import Stage as Stage
    from resift.retrieval.stages import Fuse as Fuse
    from resift.retrieval.stages import OnHits as OnHits
    from resift.retrieval.stages import Rerank as Rerank
    from resift.retrieval.store_ref import StoreRef as StoreRef
    from resift.retrieval.two_stage import TwoStage as TwoStage

_HOMES = {
    "Fuse": "stages",
    "OnHits": "stages",
    "OverFetch": "over_fetch",
    "Pipeline": "pipeline",
    "Pool": "pool",
    "Rerank": "stages",
    "RetrievalNode": "node",
    "Stage": "pool",
    "StoreRef": "store_ref",
    "Transition": "fan_out",
    "TwoStage": "two_stage",
}

__all__ = [
    "Fuse",
    "OnHits",
    "OverFetch",
    "Pipeline",
    "Pool",
    "Rerank",
    "RetrievalNode",
    "Stage",
    "StoreRef",
    "Transition",
    "TwoStage",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"resift.retrieval.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'resift.retrieval' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
