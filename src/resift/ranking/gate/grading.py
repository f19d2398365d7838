"""How good a retrieval looks before anything reranks it: one number, one letter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from resift.errors import InputError
from resift.validation import check_options, option

Letter = Literal["A", "B", "C", "D", "F"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """The numbers of the grading formula.

    value = (coverage_weight × coverage + top_weight × top + spread_weight × spread) / (sum of the weights)

    coverage   hits that clear the static floor, as a share of the wanted number, at most 1
    top        best score / `full_top`, between 0 and 1
    spread     (best score − lowest score) / `full_spread`, between 0 and 1: a flat pool tells nothing apart
    """

    coverage_weight: float = option("Weight of the coverage.", default=0.4, min=0)
    top_weight: float = option("Weight of the best score.", default=0.4, min=0)
    spread_weight: float = option("Weight of the spread.", default=0.2, min=0)
    full_top: float = option("The best score of a perfect retrieval.", default=0.75, gt=0)
    full_spread: float = option("Its distance from the best to the lowest score.", default=0.30, gt=0)
    wanted: int = option("How many hits should clear the floor.", default=10, min=1)
    lowest: tuple[tuple[Letter, float], ...] = (("A", 0.85), ("B", 0.70), ("C", 0.55), ("D", 0.40))

    def __post_init__(self) -> None:
        check_options(self)
        # The value is divided by their sum.
        if not self.coverage_weight + self.top_weight + self.spread_weight:
            raise InputError("All weights of the grading are 0; give one of them a weight above 0.")


_GRADING = Grading()  # made once: its numbers are checked whenever one is made


@dataclass(frozen=True, slots=True)
class Grade:
    """A letter, the value behind it, and the three parts of that value."""

    letter: Letter
    value: float
    coverage: float
    top: float
    spread: float

    @property
    def may_tighten(self) -> bool:
        """Whether the retrieval is good enough to drop its tail (A or B)."""
        return self.letter in ("A", "B")


def grade(
    scores: Sequence[float], *, floor: float | None, wanted: int | None = None, policy: Grading | None = None
) -> Grade:
    """Grade a retrieval by its first-stage scores; an empty one is an F."""
    rules = policy or _GRADING
    if not scores:
        return Grade("F", 0.0, 0.0, 0.0, 0.0)
    best = max(scores)
    # Without a floor every hit clears it: the grade is then made of top and spread.
    cleared = len(scores) if floor is None else sum(score >= floor for score in scores)
    # More than wanted is no better than enough.
    coverage = min(1.0, cleared / max(1, wanted or rules.wanted))
    top = _share(best, rules.full_top)
    spread = _share(best - min(scores), rules.full_spread)
    weights = rules.coverage_weight + rules.top_weight + rules.spread_weight
    parts = rules.coverage_weight * coverage + rules.top_weight * top + rules.spread_weight * spread
    value = parts / weights
    letter: Letter = next((letter for letter, lowest in rules.lowest if value >= lowest), "F")
    return Grade(letter, value, coverage, top, spread)


def _share(value: float, full: float) -> float:
    return min(1.0, max(0.0, value / full))
