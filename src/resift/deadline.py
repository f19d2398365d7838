"""The clock and the deadline that all stages of a search share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from resift.validation import check_seconds

Clock = Callable[[], float]  # a monotonic clock in seconds. Do not pass a wall clock: it can jump.


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time on a monotonic clock.

    All stages share one deadline, so time spent in one stage is no longer available to the next.
    """

    at_s: float = math.inf
    clock: Clock = time.monotonic

    @classmethod
    def after(cls, seconds: float | None, *, clock: Clock = time.monotonic) -> Deadline:
        """Return a deadline this many seconds from now; None means no deadline."""
        limit = check_seconds(seconds)
        return cls(math.inf if limit is None else clock() + limit, clock)

    @classmethod
    def never(cls) -> Deadline:
        """Return a deadline that never passes."""
        return cls()

    def remaining_s(self) -> float:
        """Return the seconds left: 0.0 after the deadline, infinity if there is no deadline."""
        return max(0.0, self.at_s - self.clock())

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self.clock() >= self.at_s

    @property
    def timeout_s(self) -> float | None:
        """Seconds left, as an argument for `asyncio.timeout`; None if there is no deadline."""
        return None if self.at_s == math.inf else max(0.0, self.at_s - self.clock())

    def sooner(self, seconds: float | None) -> Deadline:
        """Return the earlier of this deadline and one this many seconds from now."""
        if seconds is None:
            return self
        return Deadline(min(self.at_s, self.clock() + seconds), self.clock)

    def reserve(self, seconds: float) -> Deadline:
        """Return a deadline this many seconds earlier, to leave time for later work."""
        return Deadline(self.at_s - seconds, self.clock)
