"""Mistakes in a configuration: collected, so that one check tells them all, each with its line."""

from __future__ import annotations

from dataclasses import dataclass, field

from resift.errors import ConfigError


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One mistake: where it is, what it is, what to do about it."""

    line: int
    message: str


@dataclass(slots=True)
class Problems:
    """The mistakes found so far in one file (or dict: then there are no lines)."""

    file: str | None = None
    found: list[Problem] = field(default_factory=list)

    def add(self, line: int | None, message: str) -> None:
        """Note a mistake."""
        self.found.append(Problem(line or 0, message))

    def lines(self) -> list[str]:
        """Return `file:line: message` per mistake, in the order of the file."""
        return [self._located(problem) for problem in sorted(self.found)]

    def refuse(self) -> None:
        """Raise ConfigError if there are mistakes: the first in full, and how many more there are."""
        if not self.found:
            return
        first, *others = sorted(self.found)
        more = f" ({len(others)} more: run resift config check)" if others else ""
        error = ConfigError(first.message + more, file=self.file, line=first.line or None)
        if others:
            error.add_note("\n".join(self.lines()[1:]))
        raise error

    def _located(self, problem: Problem) -> str:
        place = ":".join(str(part) for part in (self.file, problem.line) if part)
        return f"{place}: {problem.message}" if place else problem.message
