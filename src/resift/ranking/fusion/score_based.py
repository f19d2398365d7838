"""Fusion by score: the scores of the lists count, on a common scale where a method asks for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum, log
from typing import Protocol, Unpack

from resift.errors import InputError
from resift.ranking.fusion.lists import ListOptions, RankedList, Rankings, prepare
from resift.ranking.fusion.normalize import Normalization, normalizer
from resift.ranking.fusion.score_dialects import (
    DBSF_DIALECTS,
    RELATIVE_SCORE_DIALECTS,
    DbsfDialect,
    RelativeScoreDialect,
    dbsf_qdrant,
    fuse_scores_as,
    within_range,
)
from resift.ranking.fusion.totals import Total, fuse_values
from resift.ranking.scaling import min_max
from resift.types import Fused
from resift.validation import check_number


class Comb(Protocol):
    """One of Fox & Shaw's combinations of scores; `normalize` where the lists differ in scale."""

    def __call__(
        self, rankings: Rankings, *, normalize: Normalization = "none", **options: Unpack[ListOptions]
    ) -> Fused:
        """Return the lists as one."""


def _comb(total: Total) -> Comb:
    """Return the method that makes this total of a hit's scores, with the name and docstring of the total."""
    name = total.__name__.replace("_", "-")

    def method(
        rankings: Rankings, *, normalize: Normalization = "none", **options: Unpack[ListOptions]
    ) -> Fused:
        lists = prepare(rankings, **options)
        values = _weighted(lists, normalizer(normalize))
        return fuse_values(lists, values, name=name, k=options.get("k"), total=total)

    method.__name__ = method.__qualname__ = total.__name__
    method.__doc__ = total.__doc__
    return method


@_comb
def comb_sum(scores: list[float]) -> float:
    """Fuse by the sum of scores (Fox & Shaw, TREC-2); normalise where lists differ in scale."""
    return fsum(scores)


@_comb
def comb_mnz(scores: list[float]) -> float:
    """Fuse by the sum of scores × the number of lists that hold the hit (Fox & Shaw, TREC-2)."""
    return len(scores) * fsum(scores)


@_comb
def comb_anz(scores: list[float]) -> float:
    """Fuse by the mean score over the lists that hold the hit (Fox & Shaw, TREC-2)."""
    return fsum(scores) / len(scores)


@_comb
def comb_max(scores: list[float]) -> float:
    """Fuse by the best score of any list (Fox & Shaw, TREC-2)."""
    return max(scores)


@_comb
def comb_min(scores: list[float]) -> float:
    """Fuse by the lowest score of the lists that hold the hit (Fox & Shaw, TREC-2)."""
    return min(scores)


def linear(
    rankings: Rankings,
    *,
    normalize: Normalization = "min-max",
    **options: Unpack[ListOptions],
) -> Fused:
    """Fuse by a weighted mean of normalised scores; a list that lacks a hit counts 0 (Bruch et al., 2023)."""
    lists = prepare(rankings, **options)
    # Divided by all weights: totals stay on the scale of one list, so that floors mean the same for 2 or 5.
    whole = fsum(ranked.weight for ranked in lists)
    scale = normalizer(normalize)
    values = [[ranked.weight / whole * value for value in scale(ranked.scores())] for ranked in lists]
    return fuse_values(lists, values, name="linear", k=options.get("k"))


def relative_score(
    rankings: Rankings,
    *,
    dialect: RelativeScoreDialect | None = None,
    **options: Unpack[ListOptions],
) -> Fused:
    """Fuse by the weighted sum of min-max scores, as Weaviate's relativeScoreFusion does."""
    if dialect is not None:
        return fuse_scores_as(dialect, rankings, RELATIVE_SCORE_DIALECTS, method="relative-score", **options)
    lists = prepare(rankings, **options)
    return fuse_values(lists, _weighted(lists, min_max), name="relative-score", k=options.get("k"))


def dbsf(
    rankings: Rankings,
    *,
    dialect: DbsfDialect | None = None,
    **options: Unpack[ListOptions],
) -> Fused:
    """Fuse by scores scaled from mean ± 3 deviations (distribution-based score fusion), then summed.

    The deviation is that of a sample, as in Qdrant. A `dialect` computes as that engine does, and refuses
    options that the engine has not.
    """
    if dialect is not None:
        return fuse_scores_as(dialect, rankings, DBSF_DIALECTS, method="dbsf", **options)
    lists = prepare(rankings, **options)
    return fuse_values(lists, _weighted(lists, within_range(dbsf_qdrant)), name="dbsf", k=options.get("k"))


def log_odds(
    rankings: Rankings,
    *,
    epsilon: float = 1e-6,
    **options: Unpack[ListOptions],
) -> Fused:
    """Fuse probabilities by the weighted sum of their log-odds (Satopää et al., 2014).

    Scores must be probabilities (calibrate first). A list that lacks a hit counts as its own lowest.
    """
    check_number(epsilon, "epsilon", gt=0, lt=0.5)
    lists = prepare(rankings, **options)
    odds = [
        [
            _log_odds(hit.id, score, epsilon)
            for hit, score in zip(ranked.hits.values(), ranked.scores(), strict=True)
        ]
        for ranked in lists
    ]
    # Absence is the weakest evidence that a list can give, not none at all.
    lowest = [min(values, default=0.0) for values in odds]
    # Relative to the list's lowest, so that a list which lacks a hit adds exactly 0.
    values = [
        [ranked.weight * (value - low) for value in ofs]
        for ranked, ofs, low in zip(lists, odds, lowest, strict=True)
    ]
    base = fsum(ranked.weight * low for ranked, low in zip(lists, lowest, strict=True))
    return fuse_values(
        lists, values, name="log-odds", k=options.get("k"), total=lambda parts: fsum([*parts, base])
    )


def _weighted(
    lists: Sequence[RankedList], scale: Callable[[Sequence[float]], list[float]]
) -> list[list[float]]:
    return [[ranked.weight * value for value in scale(ranked.scores())] for ranked in lists]


def _log_odds(id: str, score: float, epsilon: float) -> float:
    if not 0 <= score <= 1:
        raise InputError(f"log_odds needs probabilities; hit {id!r} has score {score}. Calibrate first.")
    # The odds of 0 and 1 are infinite: one sure list would outvote all others.
    chance = min(max(score, epsilon), 1 - epsilon)
    return log(chance) - log(1 - chance)
