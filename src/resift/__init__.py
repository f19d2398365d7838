"""Resift re-sifts search results: one order, the same every time, with a reason for each place."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resift.errors import ResiftError as ResiftError
    from resift.fusion.rerankers import RRFReranker as RRFReranker
    from resift.plugins import available_rerankers as available_rerankers
    from resift.plugins import load_reranker as load_reranker
    from resift.protocols import Reranker as Reranker
    from resift.reranking import rerank as rerank
    from resift.types import Hit as Hit
    from resift.types import Ranking as Ranking

__version__ = "0.1.0"

_HOMES = {
    "Hit": "resift.types",
    "RRFReranker": "resift.fusion.rerankers",
    "Ranking": "resift.types",
    "Reranker": "resift.protocols",
    "ResiftError": "resift.errors",
    "available_rerankers": "resift.plugins",
    "load_reranker": "resift.plugins",
    "rerank": "resift.reranking",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "fusion":
        return import_module("resift.fusion")
    raise AttributeError(f"module 'resift' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
