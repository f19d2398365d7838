"""Gate policies as data: floors per section, and the parameters of grading, relaxing and cliffs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from resift.errors import InputError, PluginLoadError
from resift.plugins import GATE_PROFILES, build_plugin, load_plugin
from resift.validation import check_options, check_text, option

OWN_SCORE = "score"  # the signal that stands for the hit's own score

Letter = Literal["A", "B", "C", "D", "F"]
Scale = Literal["cosine", "probability", "fused"]  # the scale of the scores that a floor applies to

_ROUNDING = 1e-12  # 0.30 − 0.25 is slightly below 0.05 in binary; the rule refers to decimal numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """Parameters of the grading formula.

    value = (coverage_weight × coverage + top_weight × top + spread_weight × spread) / (sum of the weights)

    coverage   number of hits above the static floor / `wanted`, at most 1
    top        best score / `full_top`, between 0 and 1
    spread     (best score − lowest score) / `full_spread`, between 0 and 1; 0 for a flat pool
    """

    coverage_weight: float = option("Weight of the coverage.", default=0.4, min=0)
    top_weight: float = option("Weight of the best score.", default=0.4, min=0)
    spread_weight: float = option("Weight of the spread.", default=0.2, min=0)
    full_top: float = option("Best score of a perfect retrieval.", default=0.75, gt=0)
    full_spread: float = option(
        "Distance from the best to the lowest score of a perfect retrieval.", default=0.30, gt=0
    )
    wanted: int = option("Number of hits that should reach the floor.", default=10, min=1)
    lowest: tuple[tuple[Letter, float], ...] = (("A", 0.85), ("B", 0.70), ("C", 0.55), ("D", 0.40))

    def __post_init__(self) -> None:
        check_options(self)
        if not self.coverage_weight + self.top_weight + self.spread_weight:
            raise InputError("All grading weights are 0; set at least one of them above 0.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cliff:
    """A cliff: the next score is below `ratio` × this score and at least `min_drop` lower."""

    # A ratio alone would find cliffs among scores near 0, and a drop alone among large scores.
    ratio: float = 0.85
    min_drop: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1 or self.min_drop < 0:
            raise InputError(
                f"Cliff(ratio={self.ratio}, min_drop={self.min_drop}); use 0 < ratio ≤ 1 and min_drop ≥ 0."
            )

    def between(self, current: float, following: float) -> bool:
        """Whether the step from one score to the next is a cliff."""
        steep = following < self.ratio * current - _ROUNDING
        return steep and current - following >= self.min_drop - _ROUNDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Relax:
    """Factors that lower the floor and raise the top-k of a weak retrieval, per grade.

    The reranker may find relevant hits that got low scores in the first stage.
    """

    floor: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"C": 0.8, "D": 0.65, "F": 0.5}))
    top_k: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"C": 1.25, "D": 1.5, "F": 2.0}))

    def __post_init__(self) -> None:
        if any(not 0 <= factor <= 1 for factor in self.floor.values()):
            raise InputError("Relax.floor factors must be between 0 and 1: relaxing never raises a floor.")
        if any(factor < 1 for factor in self.top_k.values()):
            raise InputError("Relax.top_k factors must be at least 1: relaxing never shrinks top-k.")

    def floor_for(self, letter: str, floor: float | None) -> float | None:
        """Return the floor for a retrieval with this grade."""
        if floor is None or letter not in self.floor:
            return floor
        return min(floor, floor * self.floor[letter])  # a floor below zero must not rise

    def top_k_for(self, letter: str, top_k: int | None) -> int | None:
        """Return the top-k for a retrieval with this grade."""
        # Rounded up, so that even a small top-k grows.
        return None if top_k is None else math.ceil(top_k * self.top_k.get(letter, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The complete policy of a gate.

    `signal` selects the scores: "score" is the hit's own score, and any other name is the score from that
    store in the trace. `scale` is the scale of the floors. A floor never drops unscored hits. Raising the
    floor must not drop all hits with the same value of the metadata key `source_type`; hits without the key
    are grouped by their `source`.
    """

    name: str = "custom"
    default: float | None = option("Floor of sections that are not in `floors`.", key="floor", default=None)
    floors: Mapping[str, float] = option("Floor per section; replaces the profile's floors.", default_factory=dict)
    signal: str = option(
        "Scores that the floors apply to: those of a store, such as docs.vectors, or `score`, the fused score.",
        default=OWN_SCORE,
    )
    scale: Scale | None = option(
        "Scale of the floors; scores on another scale are an error.",
        default=None,
        choices=("cosine", "fused", "probability"),
    )
    source_type: str = option(
        "Metadata key; raising the floor never drops all hits with the same value.", default="source_type"
    )
    grading: Grading = field(default_factory=Grading)
    relax: Relax = field(default_factory=Relax)
    cliff: Cliff = field(default_factory=Cliff)

    def check_scale(self, scale: str | None, *, signal: str = "") -> None:
        """Raise InputError if the scores have another scale than the floors; None means an unknown scale."""
        floors = self.default is not None or self.floors
        if floors and self.scale is not None and scale is not None and scale != self.scale:
            scores = "fused scores have" if self.signal == OWN_SCORE else f"{signal!r} has"
            raise InputError(
                f"The floors of the gate profile {self.name!r} are for the scale {self.scale!r}, but "
                f"{scores} {scale!r}. Name the store with this scale (signal), or use floors for {scale!r}."
            )

    def floor_for(self, section: str | None) -> float | None:
        """Return the static floor of a section; sections that are not listed use the default."""
        return self.default if section is None else self.floors.get(section, self.default)


NEUTRAL = Profile(name="neutral")
"""No floor: the scores of an unknown model mean nothing until somebody has measured them."""

MEMOSA = Profile(
    name="memosa",
    floors=MappingProxyType(
        {
            "sponsor_background": 0.10,
            "exit_strategy": 0.10,
            "financial_analysis": 0.12,
            "risk_market": 0.14,
            "comparables_analysis": 0.15,
        }
    ),
    default=0.18,
    scale="cosine",
)
"""Floors from a company that writes investment memos, for the cosine scores of its embedding model."""


def load_profile(name: str, **options: object) -> Profile:
    """Return an installed profile, built with these options, which the profile must declare."""
    plugin = load_plugin(GATE_PROFILES, check_text(name, "name"))
    profile = build_plugin(plugin, name, options) if callable(plugin) else plugin
    if not isinstance(profile, Profile):
        raise PluginLoadError(f"The gate profile {name!r} is a {type(profile).__name__}; it must be a Profile.")
    if options and not callable(plugin):
        raise InputError(f"The gate profile {name!r} has no options.")
    return profile
