"""A clock that tests move by hand."""

from __future__ import annotations


class FakeClock:
    """A monotonic clock that stands still until told otherwise; pass it wherever a clock is taken."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self.now_s = start_s

    def __call__(self) -> float:
        """Return the seconds it shows."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let that many seconds pass."""
        if seconds < 0:
            raise ValueError(f"advance({seconds}): a monotonic clock never goes back.")
        self.now_s += seconds
