"""Test kit for code that uses or extends Resift: contract checks, fakes and a clock.

Names are loaded on first use, so that importing one does not import the dependencies of the others.
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
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        clock: FakeClock
        contracts: check_reranker check_scorer check_store
        fakes: FakeStore OverlapScorer
        """,
    )
