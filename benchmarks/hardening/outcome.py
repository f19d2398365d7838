"""What an attack found: how often it was tried, what did not hold, and figures beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Outcome:
    """One attack's result; `failures` counts what must not happen, `examples` are the first of it."""

    what: str
    tried: int = 0
    failures: int = 0
    examples: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    absent: str = ""  # why it could not be run here

    def fail(self, example: str) -> None:
        """Count one that did not hold."""
        self.failures += 1
        if len(self.examples) < 10:
            self.examples.append(example[:400])

    def check(self, holds: bool, example: str) -> None:
        """Count a failure unless it holds."""
        if not holds:
            self.fail(example)
