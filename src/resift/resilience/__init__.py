"""An answer also when a provider is slow, down, wrong or busy. Knows nothing about ranking maths."""

from __future__ import annotations

from resift.resilience.breaker import CircuitBreaker, Permit
from resift.resilience.budget import Budget
from resift.resilience.circuit import State
from resift.resilience.registry import breakers, key_id
from resift.resilience.tiered import Tier, Tiered

__all__ = ["Budget", "CircuitBreaker", "Permit", "State", "Tier", "Tiered", "breakers", "key_id"]
