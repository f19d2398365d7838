"""What a pipeline file can say of the fusion methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from resift.ranking.adaptive_weights import Trust
from resift.ranking.fusion.dialects import DIALECTS
from resift.ranking.fusion.normalize import NORMALIZATIONS
from resift.ranking.fusion.score_dialects import DBSF_DIALECTS, RELATIVE_SCORE_DIALECTS
from resift.validation import Options, option


@dataclass(frozen=True, kw_only=True)
class FusionOptions(Options):
    """The options of every method."""

    identity: Literal["id", "content", "id-source"] | None = option(
        "What makes two hits the same: the id, or what the dialect's engine goes by.", default=None
    )


@dataclass(frozen=True, kw_only=True)
class RRFOptions(FusionOptions):
    """Reciprocal rank fusion."""

    k_param: float | None = option("RRF's constant: 60, or the dialect's own.", default=None, gt=0)
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
        "How patient the reader is: near 1 looks far down the lists.", default=0.8, gt=0, max=1
    )


@dataclass(frozen=True, kw_only=True)
class DBSFOptions(FusionOptions):
    """Distribution-based score fusion."""

    dialect: str | None = option(
        "Compute it exactly as this engine does.", default=None, choices=sorted(DBSF_DIALECTS)
    )


@dataclass(frozen=True, kw_only=True)
class RelativeScoreOptions(FusionOptions):
    """Relative score fusion."""

    dialect: str | None = option(
        "Compute it exactly as this engine does.", default=None, choices=sorted(RELATIVE_SCORE_DIALECTS)
    )


@dataclass(frozen=True, kw_only=True)
class WeightedOptions(FusionOptions):
    """Weighted z-scores, each list by its trust."""

    vectors: float | None = option(
        f"Part of a list found by vectors, beside one found by words; {Trust().vectors:g} unless given.",
        default=None,
        min=0,
        max=1,
    )
