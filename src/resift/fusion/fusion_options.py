"""What a pipeline file can say of the fusion methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from resift.fusion.dialects import DIALECTS, DbsfDialect
from resift.fusion.normalize import NORMALIZATIONS
from resift.options import Options, option
from resift.trust import Trust


@dataclass(frozen=True, kw_only=True)
class FusionOptions(Options):
    """The options of every method."""

    identity: Literal["id", "content", "id-source"] = option("What makes two hits the same.", default="id")


@dataclass(frozen=True, kw_only=True)
class RRFOptions(FusionOptions):
    """Reciprocal rank fusion."""

    k_param: float | None = option("RRF's constant: 60, or the dialect's own.", default=None, above=0)
    dialect: str | None = option(
        "Compute RRF exactly as this engine does.", default=None, choices=sorted(DIALECTS)
    )


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(FusionOptions):
    """Methods that add up scores."""

    normalize: str | None = option(
        "How each list's scores are put on one scale; none unless given, min-max for `linear`.",
        default=None,
        choices=sorted(NORMALIZATIONS),
    )


@dataclass(frozen=True, kw_only=True)
class RBCOptions(FusionOptions):
    """Rank-biased centroids."""

    phi: float = option(
        "How patient the reader is: near 1 looks far down the lists.", default=0.8, above=0, most=1
    )


@dataclass(frozen=True, kw_only=True)
class DBSFOptions(FusionOptions):
    """Distribution-based score fusion."""

    dialect: DbsfDialect = option("Compute it exactly as this engine does.", default="qdrant")


@dataclass(frozen=True, kw_only=True)
class WeightedOptions(FusionOptions):
    """Weighted z-scores, each list by its trust."""

    vectors: float = option(
        "Part of a list found by vectors, beside one found by words.",
        default=Trust().vectors,
        least=0,
        most=1,
    )
