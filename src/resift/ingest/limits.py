"""How much one file may cost; beyond a limit it is read more simply or not at all, and that is reported."""

from __future__ import annotations

import math
from dataclasses import dataclass

from resift.errors import InputError
from resift.validation import check_fields

MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds for one file; the defaults keep reading below 300 MB of memory."""

    parsed_bytes: int = 16 * MB
    """A file that must be parsed as a whole; a larger text is read in pieces, without its structure."""
    line_bytes: int = 16 * MB
    """One line of JSONL or CSV."""
    expanded_bytes: int = 512 * MB
    """What a compressed file may become."""
    part_bytes: int = 64 * MB
    """What one part of a compressed document may become."""
    pages: int = 5_000
    entries: int = 10_000
    seconds: float = 60.0
    """Time for reading one file, and one second more for each 10 MB of it."""
    memory_bytes: int = 2_048 * MB
    """Address space of the process that reads."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.__slots__:
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}; it must be a number above 0.")

    def seconds_for(self, size: int) -> float:
        """Return how long a file of so many bytes may take."""
        return self.seconds + size / 10_000_000


DEFAULT_LIMITS = Limits()
