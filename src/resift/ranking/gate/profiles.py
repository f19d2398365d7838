"""Floors as data: one profile per house, one floor per section."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from resift.errors import InputError, PluginLoadError
from resift.plugins import GATE_PROFILES, built_by, load_plugin
from resift.ranking.gate.cliff import Cliff
from resift.ranking.gate.grading import Grading
from resift.validation import check_arguments, option

OWN_SCORE = "score"
"""The signal that is a hit's own score."""

Scale = Literal["cosine", "probability", "fused"]
"""What a floor is a number of."""


# A weak retrieval is let through more widely: the reranker may find what the first stage scored low.
@dataclass(frozen=True, slots=True, kw_only=True)
class Relax:
    """By what factor a weak retrieval's floor falls and its top-k grows, per grade."""

    floor: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({"C": 0.8, "D": 0.65, "F": 0.5})
    )
    top_k: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({"C": 1.25, "D": 1.5, "F": 2.0})
    )

    def __post_init__(self) -> None:
        if any(not 0 <= factor <= 1 for factor in self.floor.values()):
            raise InputError("Relax.floor factors must lie between 0 and 1: relaxing never raises a floor.")
        if any(factor < 1 for factor in self.top_k.values()):
            raise InputError("Relax.top_k factors must be at least 1: relaxing never shrinks top-k.")

    def floor_for(self, letter: str, floor: float | None) -> float | None:
        """Return the floor of a retrieval with that grade."""
        if floor is None or letter not in self.floor:
            return floor
        return min(floor, floor * self.floor[letter])  # a floor below zero must not rise

    def top_k_for(self, letter: str, top_k: int | None) -> int | None:
        """Return the top-k of a retrieval with that grade."""
        # Rounded up, so that a small top-k grows at all.
        return None if top_k is None else math.ceil(top_k * self.top_k.get(letter, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Everything the gate goes by.

    `signal` says which score is meant: "score" is the hit's own, any other name is that store's score in
    the trace. `scale` says what the floors are numbers of. A hit without a score is never dropped by a floor.
    `source_type` is the metadata key whose values must not vanish through tightening (hits without it count
    by their `source`).
    """

    name: str = "custom"
    default: float | None = option("Floor where a section has none of its own.", key="floor", default=None)
    floors: Mapping[str, float] = option(
        "Floor per section; these replace the profile's.", default_factory=dict
    )
    signal: str = option(
        "Whose scores the floors mean: a store's, such as docs.vectors, or `score`, the fused.",
        default=OWN_SCORE,
    )
    scale: Scale | None = option(
        "What the floors are numbers of: a floor is refused where the scores are of another scale.",
        default=None,
        choices=("cosine", "fused", "probability"),
    )
    source_type: str = option(
        "Metadata key whose values must not vanish through tightening.", default="source_type"
    )
    grading: Grading = field(default_factory=Grading)
    relax: Relax = field(default_factory=Relax)
    cliff: Cliff = field(default_factory=Cliff)

    def check_scale(self, given: str | None, *, signal: str = "") -> None:
        """Raise InputError for floors that are numbers of another scale than the scores; None is unknown."""
        floors = self.default is not None or self.floors
        if floors and self.scale is not None and given is not None and given != self.scale:
            whose = "a hit's score behind fusion is" if self.signal == OWN_SCORE else f"{signal!r} gives"
            raise InputError(
                f"The floors of the gate profile {self.name!r} are for the scale {self.scale!r}, but {whose} "
                f"{given!r}. Name the store whose scores they are for (signal), or use floors for {given!r}."
            )

    def floor_for(self, section: str | None) -> float | None:
        """Return the static floor of a section; sections not listed have the default."""
        return self.default if section is None else self.floors.get(section, self.default)


NEUTRAL = Profile(name="neutral")
"""No floor at all: scores of unknown models mean nothing until somebody measured them."""

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
"""Floors of a house that writes investment memos, for cosine scores of its embedding model."""


@check_arguments
def profile_named(name: str, **options: object) -> Profile:
    """Return an installed profile; options are those that it declares."""
    plugin = load_plugin(GATE_PROFILES, name)
    profile = built_by(plugin, name, options) if callable(plugin) else plugin
    if not isinstance(profile, Profile):
        raise PluginLoadError(
            f"The gate profile {name!r} is a {type(profile).__name__}; it must be a Profile."
        )
    if options and not callable(plugin):
        raise InputError(f"The gate profile {name!r} has no options.")
    return profile
