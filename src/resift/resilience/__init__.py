"""An answer also when a provider is slow, down, wrong or busy. Knows nothing about ranking maths."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.resilience.breaker import CircuitBreaker as CircuitBreaker
    from resift.resilience.breaker import Permit as Permit
    from resift.resilience.budget import Budget as Budget
    from resift.resilience.circuit import State as State
    from resift.resilience.registry import breakers as breakers
    from resift.resilience.registry import key_id as key_id
    from resift.resilience.tiered import Tier as Tier
    from resift.resilience.tiered import Tiered as Tiered
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        breaker: CircuitBreaker Permit
        budget: Budget
        circuit: State
        registry: breakers key_id
        tiered: Tier Tiered
        """,
    )
