"""Resift re-sifts search results: one order, the same every time, with a reason for each place."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for typing's, whose import would cost more than this module

if TYPE_CHECKING:
    from typing import Any

    from resift.errors import ResiftError as ResiftError
    from resift.fusion.entry import fuse as fuse
    from resift.fusion.rerankers import RRFReranker as RRFReranker
    from resift.plugins import available_rerankers as available_rerankers
    from resift.plugins import load_reranker as load_reranker
    from resift.protocols import Reranker as Reranker
    from resift.reranking import rerank as rerank
    from resift.retrieval.node import RetrievalNode as RetrievalNode
    from resift.retrieval.pipeline import Pipeline as Pipeline
    from resift.retrieval.two_stage import TwoStage as TwoStage
    from resift.types import Hit as Hit
    from resift.types import Ranking as Ranking

__version__ = "0.1.0"

_HOMES = {
    "Hit": "resift.types",
    "Pipeline": "resift.retrieval.pipeline",
    "RRFReranker": "resift.fusion.rerankers",
    "Ranking": "resift.types",
    "Reranker": "resift.protocols",
    "ResiftError": "resift.errors",
    "RetrievalNode": "resift.retrieval.node",
    "TwoStage": "resift.retrieval.two_stage",
    "available_rerankers": "resift.plugins",
    "fuse": "resift.fusion.entry",
    "load_reranker": "resift.plugins",
    "rerank": "resift.reranking",
}

__all__ = [
    "Hit",
    "Pipeline",
    "RRFReranker",
    "Ranking",
    "Reranker",
    "ResiftError",
    "RetrievalNode",
    "TwoStage",
    "available_rerankers",
    "fuse",
    "load_reranker",
    "rerank",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'resift' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
