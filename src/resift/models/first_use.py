"""What is made when it is first asked for: a model takes a second to load, and may never be needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from resift._internal.forking import ForkSafeLock

T = TypeVar("T")


class OnFirstUse(Generic[T]):
    """Returns one value, made once however many threads ask; what fails is tried again at the next call."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: T | None = None
        self._lock = ForkSafeLock()

    def __call__(self) -> T:
        """Return the value."""
        with self._lock:
            # Nothing is kept of a failure: the files may be there at the next call.
            if self._made is None:
                self._made = self._make()
            return self._made
