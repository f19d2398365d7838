"""Fusion by score, on a common scale for methods that need one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum, log
from typing import Literal, Protocol, Unpack

from resift.errors import InputError
from resift.ranking.evidence import min_max, z_scores
from resift.ranking.fusion.dialects import (
    DBSF_DIALECTS,
    RELATIVE_SCORE_DIALECTS,
    DbsfDialect,
    RelativeScoreDialect,
    dbsf_qdrant,
    fuse_as,
)
from resift.ranking.fusion.lists import ListOptions, RankedList, Rankings, Total, fuse_values, prepare_lists
from resift.types import FusedHits
from resift.validation import check_choice, check_number

Normalization = Literal["min-max", "z-score", "rank", "none"]


def rank_scale(scores: Sequence[float]) -> list[float]:
    """Map the i-th of n to 1 - (i-1)/n by its position; the scores themselves do not matter."""
    # The last of n gets 1/n instead of 0: being listed counts for something.
    return [1.0 - i / len(scores) for i in range(len(scores))]


NORMALIZATIONS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "min-max": min_max,
    "none": list,
    "rank": rank_scale,
    "z-score": z_scores,
}


def normalizer(name: Normalization) -> Callable[[Sequence[float]], list[float]]:
    """Return the function that puts the scores of one list on a common scale."""
    return NORMALIZATIONS[check_choice(name, NORMALIZATIONS, "normalization")]


class Comb(Protocol):
    """One of Fox & Shaw's combinations of scores; `normalize` if the lists differ in scale."""

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
    """Return the fusion method with this total, under the name and docstring of the total."""
    name = total.__name__.replace("_", "-")

    def method(
        rankings: Rankings, *, k: int | None = None, normalize: Normalization = "none", **options: Unpack[ListOptions]
    ) -> FusedHits:
        lists = prepare_lists(rankings, **options)
        return fuse_values(lists, _scaled(lists, normalizer(normalize)), name=name, k=k, total=total)

    method.__name__ = method.__qualname__ = total.__name__
    method.__doc__ = total.__doc__
    return method


@_comb
def comb_sum(scores: list[float]) -> float:
    """Fuse by the sum of scores (Fox & Shaw, TREC-2); normalize if the lists differ in scale."""
    return fsum(scores)


@_comb
def comb_mnz(scores: list[float]) -> float:
    """Fuse by the sum of scores × the number of lists that have the hit (Fox & Shaw, TREC-2)."""
    return len(scores) * fsum(scores)


@_comb
def comb_anz(scores: list[float]) -> float:
    """Fuse by the mean score over the lists that have the hit (Fox & Shaw, TREC-2)."""
    return fsum(scores) / len(scores)


@_comb
def comb_max(scores: list[float]) -> float:
    """Fuse by the best score of any list (Fox & Shaw, TREC-2)."""
    return max(scores)


@_comb
def comb_min(scores: list[float]) -> float:
    """Fuse by the lowest score of the lists that have the hit (Fox & Shaw, TREC-2)."""
    return min(scores)


def linear(
    rankings: Rankings, *, k: int | None = None, normalize: Normalization = "min-max", **options: Unpack[ListOptions]
) -> FusedHits:
    """Fuse by a weighted mean of normalized scores; a list without the hit counts 0 (Bruch et al., 2023)."""
    lists = prepare_lists(rankings, **options)
    # Divided by the sum of weights: a threshold means the same for two lists and for five.
    weight_sum = fsum(ranked.weight for ranked in lists)
    scale = normalizer(normalize)
    values = [[ranked.weight / weight_sum * value for value in scale(ranked.scores())] for ranked in lists]
    return fuse_values(lists, values, name="linear", k=k)


def relative_score(
    rankings: Rankings,
    *,
    k: int | None = None,
    dialect: RelativeScoreDialect | None = None,
    **options: Unpack[ListOptions],
) -> FusedHits:
    """Fuse by the weighted sum of min-max scores, as Weaviate's relativeScoreFusion does."""
    if dialect is not None:
        return fuse_as(dialect, rankings, RELATIVE_SCORE_DIALECTS, method="relative-score", k=k, **options)
    lists = prepare_lists(rankings, **options)
    return fuse_values(lists, _scaled(lists, min_max), name="relative-score", k=k)


def dbsf(
    rankings: Rankings, *, k: int | None = None, dialect: DbsfDialect | None = None, **options: Unpack[ListOptions]
) -> FusedHits:
    """Fuse by the sum of scores scaled by mean ± 3 deviations (distribution-based score fusion).

    The deviation is that of a sample, as in Qdrant. A `dialect` computes exactly as that engine does and
    rejects options that the engine lacks.
    """
    if dialect is not None:
        return fuse_as(dialect, rankings, DBSF_DIALECTS, method="dbsf", k=k, **options)
    lists = prepare_lists(rankings, **options)
    return fuse_values(lists, _scaled(lists, dbsf_qdrant), name="dbsf", k=k)


def log_odds(
    rankings: Rankings, *, k: int | None = None, epsilon: float = 1e-6, **options: Unpack[ListOptions]
) -> FusedHits:
    """Fuse probabilities by the weighted sum of their log-odds (Satopää et al., 2014).

    Scores must be probabilities (calibrate first). A list without the hit counts as its lowest score.
    """
    check_number(epsilon, "epsilon", gt=0, lt=0.5)
    lists = prepare_lists(rankings, **options)
    odds = []
    for ranked in lists:
        scored = zip(ranked.hits.values(), ranked.scores(), strict=True)
        odds.append([_log_odds(hit.id, score, epsilon) for hit, score in scored])
    lowest = [min(column, default=0.0) for column in odds]
    # Relative to the list's lowest, so that a list without the hit adds exactly 0.
    values = [
        [ranked.weight * (value - low) for value in column]
        for ranked, column, low in zip(lists, odds, lowest, strict=True)
    ]
    base = fsum(ranked.weight * low for ranked, low in zip(lists, lowest, strict=True))
    return fuse_values(lists, values, name="log-odds", k=k, total=lambda parts: fsum([*parts, base]))


def _scaled(lists: Sequence[RankedList], scale: Callable[[Sequence[float]], list[float]]) -> list[list[float]]:
    return [[ranked.weight * value for value in scale(ranked.scores())] for ranked in lists]


def _log_odds(id: str, score: float, epsilon: float) -> float:
    if not 0 <= score <= 1:
        raise InputError(f"log_odds needs probabilities; hit {id!r} has score {score}. Calibrate first.")
    # The odds of 0 and 1 are infinite: one certain list would outvote all others.
    probability = min(max(score, epsilon), 1 - epsilon)
    return log(probability) - log(1 - probability)
