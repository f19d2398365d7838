"""One clock and one deadline for everything that takes time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from resift.validation import check_seconds

Clock = Callable[[], float]
"""A monotonic clock in seconds. Wall clocks jump; never pass one."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on a monotonic clock. Stages share one, so time spent in one stage is not available to the next."""

    at_s: float = math.inf
    clock: Clock = time.monotonic

    @classmethod
    def after(cls, seconds: float | None, *, clock: Clock = time.monotonic) -> Deadline:
        """Return the deadline that many seconds from now; None means never."""
        if seconds is None:
            return cls(math.inf, clock)
        limit = check_seconds(seconds)
        return cls(math.inf if limit is None else clock() + limit, clock)

    @classmethod
    def never(cls) -> Deadline:
        """Return a deadline that never passes."""
        return cls()

    def remaining_s(self) -> float:
        """Seconds left: 0.0 once it has passed, infinity when there is none."""
        return max(0.0, self.at_s - self.clock())

    @property
    def expired(self) -> bool:
        """Whether it has passed."""
        return self.clock() >= self.at_s

    @property
    def timeout_s(self) -> float | None:
        """Seconds left in the form that asyncio.timeout takes: None when there is no deadline."""
        return None if self.at_s == math.inf else max(0.0, self.at_s - self.clock())

    def sooner(self, seconds: float | None) -> Deadline:
        """Return the earlier of this one and that many seconds from now."""
        if seconds is None:
            return self
        return Deadline(min(self.at_s, self.clock() + seconds), self.clock)

    def reserve(self, seconds: float) -> Deadline:
        """Return a deadline that much earlier, to leave time for what comes after."""
        return Deadline(self.at_s - seconds, self.clock)
