"""A clock that tests advance by hand."""

from __future__ import annotations


class FakeClock:
    """A monotonic clock that moves only when `advance` is called; pass it as any `clock` argument."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self.now_s = start_s

    def __call__(self) -> float:
        """Return the current time in seconds."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        if seconds < 0:
            raise ValueError(f"advance({seconds}): a monotonic clock never goes back.")
        self.now_s += seconds
