"""Fusion by rank; the scores in the lists are ignored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import fsum, ulp
from typing import Unpack

from resift.errors import InputError
from resift.ranking.fusion.dialects import DialectName, fuse_as
from resift.ranking.fusion.lists import Identity, ListOptions, RankedList, Rankings, Weights, fuse_values, prepare_lists
from resift.types import FusedHits
from resift.validation import check_number


def rrf(
    rankings: Rankings,
    *,
    k: int | None = None,
    k_param: float | None = None,
    dialect: DialectName | None = None,
    **options: Unpack[ListOptions],
) -> FusedHits:
    """Fuse by reciprocal rank: Σ w / (k_param + rank), rank from 1 (Cormack et al., SIGIR 2009).

    The result does not depend on the order of the lists; ties are sorted by id. The default k_param is 60.
    With a `dialect`, the result is exactly that of the engine, with its constant; options that the engine
    does not have are rejected.
    """
    if dialect is not None:
        return fuse_as(dialect, rankings, k=k, k_param=k_param, **options)
    k_param = 60 if k_param is None else k_param
    # The limit catches infinity and typos: with a constant of 1e9, ranks hardly matter.
    if isinstance(k_param, bool) or not isinstance(k_param, (int, float)) or not 0 <= k_param < 1e9:
        raise InputError(f"k_param is {k_param!r}; pass a number, 0 or more (the paper uses 60).")
    lists = prepare_lists(rankings, **options)
    if all(ranked.weight == 1.0 and isinstance(ranked.ranks, range) for ranked in lists):  # nearly always
        return _fuse_reciprocals(lists, k_param, k)
    values = [[ranked.weight / (k_param + rank) for rank in ranked.ranks] for ranked in lists]
    return fuse_values(lists, values, name="rrf", k=k)


def _fuse_reciprocals(lists: Sequence[RankedList], k_param: float, k: int | None) -> FusedHits:
    """Fuse lists with weight 1 and ranks without gaps; the totals are those of fsum, in 80 % of its time."""
    reciprocals, integers, unit = _reciprocals(k_param, max([len(ranked.hits) for ranked in lists], default=0))
    sums: dict[str, int] = {}
    for ranked in lists:
        if not sums:
            sums = dict(zip(ranked.hits, integers, strict=False))
            continue
        for key, integer in zip(ranked.hits, integers, strict=False):
            if key in sums:
                sums[key] += integer
            else:
                sums[key] = integer
    totals = {key: integer * unit for key, integer in sums.items()}
    values = [reciprocals[: len(ranked.hits)] for ranked in lists]
    return fuse_values(lists, values, name="rrf", k=k, totals=totals)


def weighted_rrf(
    rankings: Rankings,
    weights: Weights,
    *,
    k: int | None = None,
    k_param: float = 60,
    sources: Sequence[str] | None = None,
    identity: Identity = "id",
) -> FusedHits:
    """Fuse by reciprocal rank with one weight per list; a weight of 0 ignores its list."""
    return rrf(rankings, k=k, k_param=k_param, weights=weights, sources=sources, identity=identity)


def isr(rankings: Rankings, *, k: int | None = None, **options: Unpack[ListOptions]) -> FusedHits:
    """Fuse by inverse square rank: number of lists × Σ w / rank² (Mourão et al., 2014)."""
    lists = prepare_lists(rankings, **options)
    values = [[ranked.weight / rank**2 for rank in ranked.ranks] for ranked in lists]
    return fuse_values(lists, values, name="isr", k=k, total=lambda parts: len(parts) * fsum(parts))


def rbc(rankings: Rankings, *, k: int | None = None, phi: float = 0.8, **options: Unpack[ListOptions]) -> FusedHits:
    """Fuse by rank-biased centroids: Σ w (1-φ) φ^(rank-1) (Bailey et al., SIGIR 2017)."""
    check_number(phi, "phi", gt=0, lt=1)
    lists = prepare_lists(rankings, **options)
    values = [[ranked.weight * (1 - phi) * phi ** (rank - 1) for rank in ranked.ranks] for ranked in lists]
    return fuse_values(lists, values, name="rbc", k=k)


def borda(rankings: Rankings, *, k: int | None = None, **options: Unpack[ListOptions]) -> FusedHits:
    """Fuse by Borda count: of n candidates, the first gets n points, the second n-1, and so on.

    Candidates that a list does not rank share its remaining points (Aslam & Montague, SIGIR 2001).
    """
    lists = prepare_lists(rankings, **options)
    candidates = len({key for ranked in lists for key in ranked.hits})
    # Each unranked candidate gets the mean of the remaining points. Values are relative to this mean, which
    # shifts all totals by the same constant.
    shares = [(candidates - len(ranked.hits) + 1) / 2 for ranked in lists]
    values = [
        [ranked.weight * (candidates - i - share) for i in range(len(ranked.hits))]
        for ranked, share in zip(lists, shares, strict=True)
    ]
    base = fsum(ranked.weight * share for ranked, share in zip(lists, shares, strict=True))
    return fuse_values(lists, values, name="borda", k=k, total=lambda parts: fsum([*parts, base]))


@lru_cache(maxsize=64)  # list lengths repeat across searches
def _reciprocals(k_param: float, count: int) -> tuple[tuple[float, ...], tuple[int, ...], float]:
    """Return the reciprocals of the first ranks, also as integers, and the unit of the integers, a power of 2."""
    reciprocals = tuple([1.0 / (k_param + rank) for rank in range(1, count + 1)])
    unit = ulp(min(reciprocals, default=1.0))  # all larger floats are multiples of it
    return reciprocals, tuple([int(value / unit) for value in reciprocals]), unit
