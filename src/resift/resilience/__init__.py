"""Circuit breakers, time budgets and fallback tiers: results even if a provider is slow, down or faulty."""

from resift.resilience.breaker import CircuitBreaker, CircuitBreakerChanged, Permit, breakers, key_id
from resift.resilience.budget import Budget
from resift.resilience.circuit import State
from resift.resilience.tiered import CrossEncoderSkipped, CrossEncoderSucceeded, FallbackReranked, Tier, Tiered

__all__ = [
    "Budget", "CircuitBreaker", "CircuitBreakerChanged", "CrossEncoderSkipped", "CrossEncoderSucceeded",
    "FallbackReranked", "Permit", "State", "Tier", "Tiered", "breakers", "key_id",
]  # fmt: skip
