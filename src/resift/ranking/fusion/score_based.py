"""Fusion by score, with normalization for methods that need a common scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum, log
from typing import Literal, Protocol, Unpack

from resift.errors import InputError
from resift.ranking.evidence import min_max, z_scores
from resift.ranking.fusion import dialects
from resift.ranking.fusion.lists import ListOptions, RankedList, Rankings, Total, fuse_values, prepare_lists
from resift.types import FusedHits
from resift.validation import check_choice, check_number

Normalization = Literal["min-max", "z-score", "rank", "none"]


def rank_scale(scores: Sequence[float]) -> list[float]:
    """Map the i-th of n scores to 1 - (i-1)/n; the values of the scores are ignored."""
    # The last of n gets 1/n instead of 0, because being in the list counts for something.
    return [1.0 - i / len(scores) for i in range(len(scores))]


NORMALIZATIONS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "min-max": min_max,
    "none": list,
    "rank": rank_scale,
    "z-score": z_scores,
}


def normalizer(name: Normalization) -> Callable[[Sequence[float]], list[float]]:
    """Return the function that normalizes the scores of a list."""
    return NORMALIZATIONS[check_choice(name, NORMALIZATIONS, "normalization")]


class Comb(Protocol):
    """One of Fox & Shaw's combinations of scores. Use `normalize` if the lists have different scales."""

    def __call__(
        self,
        rankings: Rankings,
        *,
        k: int | None = None,
        normalize: Normalization = "none",
        **options: Unpack[ListOptions],
    ) -> FusedHits:
        """Fuse the lists."""


def _comb(total: Total) -> Comb:
    """Return the fusion method that uses this total, with the name and docstring of the total."""
    name = total.__name__.replace("_", "-")

    def method(
        rankings: Rankings, *, k: int | None = None, normalize: Normalization = "none", **options: Unpack[ListOptions]
    ) -> FusedHits:
        lists = prepare_lists(rankings, **options)
        return fuse_values(lists, _scale_lists(lists, normalizer(normalize)), name=name, k=k, total=total)

    method.__name__ = method.__qualname__ = total.__name__
    method.__doc__ = total.__doc__
    return method


@_comb
def comb_sum(scores: list[float]) -> float:
    """Fuse by the sum of scores (Fox & Shaw, TREC-2); use `normalize` if the lists have different scales."""
    return fsum(scores)


@_comb
def comb_mnz(scores: list[float]) -> float:
    """Fuse by the sum of scores × the number of lists that contain the hit (Fox & Shaw, TREC-2)."""
    return len(scores) * fsum(scores)


@_comb
def comb_anz(scores: list[float]) -> float:
    """Fuse by the mean score over the lists that contain the hit (Fox & Shaw, TREC-2)."""
    return fsum(scores) / len(scores)


@_comb
def comb_max(scores: list[float]) -> float:
    """Fuse by the best score in any list (Fox & Shaw, TREC-2)."""
    return max(scores)


@_comb
def comb_min(scores: list[float]) -> float:
    """Fuse by the lowest score in the lists that contain the hit (Fox & Shaw, TREC-2)."""
    return min(scores)


def linear(
    rankings: Rankings, *, k: int | None = None, normalize: Normalization = "min-max", **options: Unpack[ListOptions]
) -> FusedHits:
    """Fuse by a weighted mean of normalized scores; a list without the hit counts as 0 (Bruch et al., 2023)."""
    lists = prepare_lists(rankings, **options)
    # Divided by the sum of weights, so that a threshold means the same for two lists and for five.
    weight_sum = fsum(ranked.weight for ranked in lists)
    scale = normalizer(normalize)
    values = [[ranked.weight / weight_sum * value for value in scale(ranked.scores())] for ranked in lists]
    return fuse_values(lists, values, name="linear", k=k)


def relative_score(
    rankings: Rankings,
    *,
    k: int | None = None,
    dialect: dialects.RelativeScoreDialect | None = None,
    **options: Unpack[ListOptions],
) -> FusedHits:
    """Fuse by the weighted sum of min-max scores, as Weaviate's relativeScoreFusion does."""
    if dialect is not None:
        return dialects.fuse_as(
            dialect, rankings, dialects.RELATIVE_SCORE_DIALECTS, method="relative-score", k=k, **options
        )
    lists = prepare_lists(rankings, **options)
    return fuse_values(lists, _scale_lists(lists, min_max), name="relative-score", k=k)


def dbsf(
    rankings: Rankings,
    *,
    k: int | None = None,
    dialect: dialects.DbsfDialect | None = None,
    **options: Unpack[ListOptions],
) -> FusedHits:
    """Fuse by the sum of scores scaled by mean ± 3 standard deviations (distribution-based score fusion).

    By default, it uses the sample standard deviation, as Qdrant does. With a `dialect`, the result is exactly
    that of the engine, and options that the engine does not have are rejected.
    """
    if dialect is not None:
        return dialects.fuse_as(dialect, rankings, dialects.DBSF_DIALECTS, method="dbsf", k=k, **options)
    lists = prepare_lists(rankings, **options)
    return fuse_values(lists, _scale_lists(lists, dialects.dbsf_qdrant), name="dbsf", k=k)


def log_odds(
    rankings: Rankings, *, k: int | None = None, epsilon: float = 1e-6, **options: Unpack[ListOptions]
) -> FusedHits:
    """Fuse probabilities by the weighted sum of their log-odds (Satopää et al., 2014).

    Scores must be probabilities, so calibrate them first. A hit that is not in a list gets the list's lowest score.
    """
    check_number(epsilon, "epsilon", gt=0, lt=0.5)
    lists = prepare_lists(rankings, **options)
    odds = []
    for ranked in lists:
        scored = zip(ranked.hits.values(), ranked.scores(), strict=True)
        odds.append([_log_odds(hit.id, score, epsilon) for hit, score in scored])
    lowest = [min(column, default=0.0) for column in odds]
    # Relative to the lowest value of the list, so that a list without the hit adds exactly 0.
    values = [
        [ranked.weight * (value - low) for value in column]
        for ranked, column, low in zip(lists, odds, lowest, strict=True)
    ]
    base = fsum(ranked.weight * low for ranked, low in zip(lists, lowest, strict=True))
    return fuse_values(lists, values, name="log-odds", k=k, total=lambda parts: fsum([*parts, base]))


def _scale_lists(lists: Sequence[RankedList], scale: Callable[[Sequence[float]], list[float]]) -> list[list[float]]:
    return [[ranked.weight * value for value in scale(ranked.scores())] for ranked in lists]


def _log_odds(id: str, score: float, epsilon: float) -> float:
    if not 0 <= score <= 1:
        raise InputError(f"log_odds needs probabilities; hit {id!r} has score {score}. Calibrate first.")
    # The log-odds of 0 and 1 are infinite, so a single such score would outvote all other lists.
    probability = min(max(score, epsilon), 1 - epsilon)
    return log(probability) - log(1 - probability)
