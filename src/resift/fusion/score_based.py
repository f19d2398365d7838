"""Fusion by score: the scores of the lists count, on a common scale where a method asks for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum, log

from resift.errors import InputError, did_you_mean
from resift.fusion.dialects import DBSF_DIALECTS, DbsfDialect
from resift.fusion.lists import Identity, RankedList, Rankings, Weights, prepare
from resift.fusion.normalize import Normalization, min_max, normalizer
from resift.fusion.totals import Total, fuse_values
from resift.types import Hit


def comb_sum(
    rankings: Rankings,
    *,
    normalize: Normalization = "none",
    k: int | None = None,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity = "id",
) -> list[Hit]:
    """Fuse by the sum of scores (Fox & Shaw, TREC-2); normalise where lists differ in scale."""
    lists = prepare(rankings, weights=weights, sources=sources, identity=identity)
    return _comb(lists, "comb-sum", normalize, k, fsum)


def comb_mnz(
    rankings: Rankings,
    *,
    normalize: Normalization = "none",
    k: int | None = None,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity = "id",
) -> list[Hit]:
    """Fuse by the sum of scores × the number of lists that hold the hit (Fox & Shaw, TREC-2)."""
    lists = prepare(rankings, weights=weights, sources=sources, identity=identity)
    return _comb(lists, "comb-mnz", normalize, k, lambda parts: len(parts) * fsum(parts))


def comb_anz(
    rankings: Rankings,
    *,
    normalize: Normalization = "none",
    k: int | None = None,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity = "id",
) -> list[Hit]:
    """Fuse by the mean score over the lists that hold the hit (Fox & Shaw, TREC-2)."""
    lists = prepare(rankings, weights=weights, sources=sources, identity=identity)
    return _comb(lists, "comb-anz", normalize, k, lambda parts: fsum(parts) / len(parts))


def comb_max(
    rankings: Rankings,
    *,
    normalize: Normalization = "none",
    k: int | None = None,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity = "id",
) -> list[Hit]:
    """Fuse by the best score of any list (Fox & Shaw, TREC-2)."""
    lists = prepare(rankings, weights=weights, sources=sources, identity=identity)
    return _comb(lists, "comb-max", normalize, k, max)


def comb_min(
    rankings: Rankings,
    *,
    normalize: Normalization = "none",
    k: int | None = None,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity = "id",
) -> list[Hit]:
    """Fuse by the lowest score of the lists that hold the hit (Fox & Shaw, TREC-2)."""
    lists = prepare(rankings, weights=weights, sources=sources, identity=identity)
    return _comb(lists, "comb-min", normalize, k, min)


def linear(
    rankings: Rankings,
    *,
    normalize: Normalization = "min-max",
    k: int | None = None,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity = "id",
) -> list[Hit]:
    """Fuse by a weighted mean of normalised scores; a list that lacks a hit counts 0 (Bruch et al., 2023)."""
    lists = prepare(rankings, weights=weights, sources=sources, identity=identity)
    whole = fsum(ranked.weight for ranked in lists)
    scale = normalizer(normalize)
    values = [
        [ranked.weight / whole * value for value in scale([hit.score for hit in ranked.hits])]
        for ranked in lists
    ]
    return fuse_values(lists, values, stage="linear", k=k)


def relative_score(
    rankings: Rankings,
    *,
    k: int | None = None,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity = "id",
) -> list[Hit]:
    """Fuse by the weighted sum of min-max scores, as Weaviate's relativeScoreFusion does."""
    lists = prepare(rankings, weights=weights, sources=sources, identity=identity)
    return fuse_values(lists, _weighted(lists, min_max), stage="relative-score", k=k)


def dbsf(
    rankings: Rankings,
    *,
    dialect: DbsfDialect = "qdrant",
    k: int | None = None,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity = "id",
) -> list[Hit]:
    """Fuse by scores scaled from mean ± 3 deviations (distribution-based score fusion), then summed."""
    if dialect not in DBSF_DIALECTS:
        raise InputError(f"Unknown DBSF dialect {dialect!r}. {did_you_mean(str(dialect), DBSF_DIALECTS)}")
    rule = DBSF_DIALECTS[dialect]
    if weights is None and rule.shares_weight and len(rankings):
        weights = [1 / len(rankings)] * len(rankings)
    lists = prepare(rankings, weights=weights, sources=sources, identity=identity)
    return fuse_values(lists, _weighted(lists, rule.scale), stage="dbsf", k=k, total=rule.total)


def log_odds(
    rankings: Rankings,
    *,
    epsilon: float = 1e-6,
    k: int | None = None,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity = "id",
) -> list[Hit]:
    """Fuse probabilities by the weighted sum of their log-odds (Satopää et al., 2014).

    Scores must be probabilities (calibrate first). A list that lacks a hit counts as its own lowest.
    """
    if not 0 < epsilon < 0.5:
        raise InputError(f"epsilon is {epsilon}; it must lie between 0 and 0.5.")
    lists = prepare(rankings, weights=weights, sources=sources, identity=identity)
    odds = [[_log_odds(hit, epsilon) for hit in ranked.hits] for ranked in lists]
    lowest = [min(values, default=0.0) for values in odds]
    # Relative to the list's lowest, so that a list which lacks a hit adds exactly 0.
    values = [
        [ranked.weight * (value - low) for value in ofs]
        for ranked, ofs, low in zip(lists, odds, lowest, strict=True)
    ]
    base = fsum(ranked.weight * low for ranked, low in zip(lists, lowest, strict=True))
    return fuse_values(lists, values, stage="log-odds", k=k, total=lambda parts: fsum([*parts, base]))


def _comb(
    lists: Sequence[RankedList], stage: str, normalize: Normalization, k: int | None, total: Total
) -> list[Hit]:
    return fuse_values(lists, _weighted(lists, normalizer(normalize)), stage=stage, k=k, total=total)


def _weighted(
    lists: Sequence[RankedList], scale: Callable[[Sequence[float]], list[float]]
) -> list[list[float]]:
    return [
        [ranked.weight * value for value in scale([hit.score for hit in ranked.hits])] for ranked in lists
    ]


def _log_odds(hit: Hit, epsilon: float) -> float:
    if not 0 <= hit.score <= 1:
        raise InputError(
            f"log_odds needs probabilities; hit {hit.id!r} has score {hit.score}. Calibrate first."
        )
    chance = min(max(hit.score, epsilon), 1 - epsilon)
    return log(chance) - log(1 - chance)
