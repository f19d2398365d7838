"""For tests of code that uses or extends Resift: contract checks, fakes, a clock, a provider server.

Loaded on first use, so that importing one name does not import the others' dependencies.
"""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

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
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        clock: FakeClock
        contracts: check_reranker check_scorer check_store
        fakes: FakeStore OverlapScorer
        provider_faults: FAULTS
        provider_server: ProviderRequest ProviderServer
        """,
    )
