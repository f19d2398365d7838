"""For tests of code that uses or extends Resift: contract checks, fakes, a clock, a provider server.

Loaded on first use, so that importing one name does not import the others' dependencies.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resift.testing.clock import FakeClock as FakeClock
    from resift.testing.contracts import check_reranker as check_reranker
    from resift.testing.contracts import check_scorer as check_scorer
    from resift.testing.contracts import check_store as check_store
    from resift.testing.fakes import FakeStore as FakeStore
    from resift.testing.fakes import OverlapScorer as OverlapScorer
    from resift.testing.provider_faults import FAULTS as FAULTS
    from resift.testing.provider_server import ProviderRequest as ProviderRequest
    from resift.testing.provider_server import ProviderServer as ProviderServer

_HOMES = {
    "FAULTS": "resift.testing.provider_faults",
    "FakeClock": "resift.testing.clock",
    "FakeStore": "resift.testing.fakes",
    "OverlapScorer": "resift.testing.fakes",
    "ProviderRequest": "resift.testing.provider_server",
    "ProviderServer": "resift.testing.provider_server",
    "check_reranker": "resift.testing.contracts",
    "check_scorer": "resift.testing.contracts",
    "check_store": "resift.testing.contracts",
}

__all__ = [
    "FAULTS",
    "FakeClock",
    "FakeStore",
    "OverlapScorer",
    "ProviderRequest",
    "ProviderServer",
    "check_reranker",
    "check_scorer",
    "check_store",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'resift.testing' has no attribute {name!r}")
