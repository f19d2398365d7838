"""A fake of every hosted provider, for tests, docs and examples of hosted rerankers."""

from tests.providers.faults import FAULTS
from tests.providers.server import ProviderRequest, ProviderServer

__all__ = ["FAULTS", "ProviderRequest", "ProviderServer"]
