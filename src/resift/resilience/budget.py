"""Budgets: use the measured latency to decide whether there is time to call a provider for n items."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from resift._internal.forking import ForkSafeLock
from resift.deadline import Clock, Deadline
from resift.errors import InputError
from resift.resilience.circuit import require_seconds
from resift.validation import option

WINDOW = 32  # number of recent calls that are taken into account

MIN_SAMPLES = 4  # minimum number of measurements; the initial value replaces missing ones

QUANTILE = 0.75
"""Quantile of the measurements. It is above the median, because an unfinished call costs more than a skipped one."""


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """Options of a budget in a pipeline file."""

    absolute_floor_s: float = option("Never call a provider with less time than this.", default=0.2, min=0)
    per_item_floor_s: float = option("Initial seconds per hit; replaced by measurements.", default=0.025, min=0)
    reserve_s: float = option("Time reserved for the last tier.", default=0.05, min=0)


class Budget:
    """Allows a call if `remaining ≥ max(absolute_floor, n × per_item) + reserve`.

    `per_item` starts at `per_item_floor_s` and follows the measured latency: the 0.75 quantile of the last 32
    calls within `memory_s` seconds, clamped to `per_item_bounds_s`. Small calls, for which the absolute floor
    applies, are not measured, because they are mostly overhead.
    """

    def __init__(
        self,
        absolute_floor_s: float = 0.2,
        per_item_floor_s: float = 0.025,
        reserve_s: float = 0.05,
        *,
        per_item_bounds_s: tuple[float, float] = (0.0005, 0.5),
        memory_s: float = 600.0,
        clock: Clock = time.monotonic,
    ) -> None:
        self.absolute_floor_s = require_seconds("absolute_floor_s", absolute_floor_s)
        self.per_item_floor_s = require_seconds("per_item_floor_s", per_item_floor_s)
        self.reserve_s = require_seconds("reserve_s", reserve_s)
        if not isinstance(per_item_bounds_s, (tuple, list)) or len(per_item_bounds_s) != 2:
            raise InputError("per_item_bounds_s must be a pair of numbers: (lowest, highest).")
        self._low_s, self._high_s = (require_seconds("per_item_bounds_s", bound) for bound in per_item_bounds_s)
        if self._low_s > self._high_s:
            raise InputError(f"per_item_bounds_s is {per_item_bounds_s}; pass (lowest, highest).")
        self._memory_s = require_seconds("memory_s", memory_s)
        self._clock = clock
        self._lock = ForkSafeLock()
        self._recent: dict[str, deque[tuple[float, float]]] = {}  # provider -> (time, seconds per item)

    def __repr__(self) -> str:
        return (
            f"Budget(absolute_floor_s={self.absolute_floor_s}, per_item_floor_s={self.per_item_floor_s}, "
            f"reserve_s={self.reserve_s}, measured={self.snapshot()})"
        )

    def allows(self, n: int, deadline: Deadline, *, provider: str = "") -> bool:
        """Whether there is time to score n items and keep the reserve."""
        # The tolerance is a nanosecond, because the remaining time is a difference of two large floats.
        return deadline.remaining_s() + 1e-9 >= self.needed_s(n, provider=provider) + self.reserve_s

    def needed_s(self, n: int, *, provider: str = "") -> float:
        """Return the estimated seconds for n items; at least the absolute floor."""
        return max(self.absolute_floor_s, n * self.per_item_s(provider))

    def per_item_s(self, provider: str = "") -> float:
        """Return the current estimate of seconds per item; without recent measurements, the initial value."""
        recent = self._recent.get(provider)
        if recent is None:
            return self.per_item_floor_s
        with self._lock:
            # Old measurements expire, so that a slow period does not exclude a provider forever.
            oldest_s = self._clock() - self._memory_s
            samples = [sample_s for time_s, sample_s in recent if time_s >= oldest_s]
        if not samples:
            return self.per_item_floor_s
        # A slow first call must not exclude the following calls.
        samples += [self.per_item_floor_s] * (MIN_SAMPLES - len(samples))
        quantile_s = sorted(samples)[int(QUANTILE * (len(samples) - 1) + 0.5)]
        return min(max(quantile_s, self._low_s), self._high_s)

    def record(self, n: int, elapsed_s: float, *, provider: str = "", finished: bool = True) -> None:
        """Record a call for n items; pass `finished=False` if it ran out of time."""
        # Calls for a few items are mostly overhead, so their time per item would exclude larger calls.
        if n <= 0 or n * self.per_item_floor_s < self.absolute_floor_s:
            return
        sample_s = max(0.0, elapsed_s) / n
        # An unfinished call only shows that the true time is longer.
        if not finished and sample_s <= self.per_item_s(provider):
            return
        with self._lock:
            self._recent.setdefault(provider, deque(maxlen=WINDOW)).append((self._clock(), sample_s))

    def snapshot(self) -> dict[str, float]:
        """Return the measured seconds per item of each provider."""
        return {provider: self.per_item_s(provider) for provider in tuple(self._recent)}
