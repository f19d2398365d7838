"""Fusion by rank: only the places in the lists count, never the scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import fsum, ldexp
from typing import Unpack

from resift.errors import InputError
from resift.ranking.fusion.dialects import DialectName, fuse_as
from resift.ranking.fusion.lists import Identity, ListOptions, RankedList, Rankings, Weights, prepare
from resift.ranking.fusion.totals import FixedPoint, fuse_values
from resift.types import Fused
from resift.validation import check_number


def rrf(
    rankings: Rankings,
    *,
    k_param: float | None = None,
    dialect: DialectName | None = None,
    **options: Unpack[ListOptions],
) -> Fused:
    """Fuse by reciprocal rank: Σ w / (k_param + rank), rank from 1 (Cormack et al., SIGIR 2009).

    The order of the lists never changes scores or order; equal scores sort by id. k_param is 60 unless given.
    A `dialect` computes as that engine does instead, with its own constant, and refuses options that the
    engine has not.
    """
    if dialect is not None:
        return fuse_as(dialect, rankings, k_param=k_param, **options)
    k_param = 60 if k_param is None else k_param
    _check_k_param(k_param)
    lists = prepare(rankings, **options)
    # Unit weights and unbroken ranks, nearly always: their reciprocals come from a table.
    plain = all(ranked.weight == 1.0 and isinstance(ranked.ranks, range) for ranked in lists)
    if plain:
        floats, fixed_point = _unit_reciprocals(lists, k_param)
        return fuse_values(lists, floats, name="rrf", k=options.get("k"), fixed_point=fixed_point)
    values = [[ranked.weight / (k_param + rank) for rank in ranked.ranks] for ranked in lists]
    return fuse_values(lists, values, name="rrf", k=options.get("k"))


def weighted_rrf(
    rankings: Rankings,
    weights: Weights,
    *,
    k_param: float = 60,
    k: int | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity = "id",
) -> Fused:
    """Fuse by reciprocal rank with one weight per list; a weight of 0 leaves its list out."""
    return rrf(rankings, k_param=k_param, k=k, weights=weights, sources=sources, identity=identity)


def isr(
    rankings: Rankings,
    **options: Unpack[ListOptions],
) -> Fused:
    """Fuse by inverse square rank: number of lists × Σ w / rank² (Mourão et al., 2014)."""
    lists = prepare(rankings, **options)
    values = [[ranked.weight / rank**2 for rank in ranked.ranks] for ranked in lists]
    return fuse_values(
        lists, values, name="isr", k=options.get("k"), total=lambda parts: len(parts) * fsum(parts)
    )


def rbc(
    rankings: Rankings,
    *,
    phi: float = 0.8,
    **options: Unpack[ListOptions],
) -> Fused:
    """Fuse by rank-biased centroids: Σ w (1-φ) φ^(rank-1) (Bailey et al., SIGIR 2017)."""
    check_number(phi, "phi", gt=0, lt=1)
    lists = prepare(rankings, **options)
    values = [[ranked.weight * (1 - phi) * phi ** (rank - 1) for rank in ranked.ranks] for ranked in lists]
    return fuse_values(lists, values, name="rbc", k=options.get("k"))


def borda(
    rankings: Rankings,
    **options: Unpack[ListOptions],
) -> Fused:
    """Fuse by Borda count: n points for the first, n-1 for the next, … of n candidates in all.

    Candidates that a list does not rank share its remaining points (Aslam & Montague, SIGIR 2001).
    """
    lists = prepare(rankings, **options)
    everyone = {key for ranked in lists for key in ranked.hits}
    # Points are relative to an unranked candidate's share: every total moves by the same constant.
    values = [_borda_gain(ranked, len(everyone)) for ranked in lists]
    shared = fsum(ranked.weight * _share(ranked, len(everyone)) for ranked in lists)
    return fuse_values(
        lists, values, name="borda", k=options.get("k"), total=lambda parts: fsum([*parts, shared])
    )


def _borda_gain(ranked: RankedList, candidates: int) -> list[float]:
    share = _share(ranked, candidates)
    return [ranked.weight * (candidates - place - share) for place in range(len(ranked.hits))]


def _share(ranked: RankedList, candidates: int) -> float:
    """Return what each candidate outside the list gets: the mean of the points that are left."""
    return (candidates - len(ranked.hits) + 1) / 2


def _unit_reciprocals(
    lists: Sequence[RankedList], k_param: float
) -> tuple[list[Sequence[float]], FixedPoint]:
    """Return 1 / (k_param + rank) per list, as floats and as integers of one scale."""
    # One scale for all lists, so that integers of different lists add up.
    longest = max((len(ranked.hits) for ranked in lists), default=0)
    # A float has 53 bits; the smallest reciprocal starts this much further down.
    bits = 53 + int(k_param + longest).bit_length()
    columns = [_reciprocals(k_param, len(ranked.hits), bits) for ranked in lists]
    return [floats for floats, _ in columns], FixedPoint([integers for _, integers in columns], bits)


# Lists of one length come with every search; 64 lengths are more than a pipeline has.
@lru_cache(maxsize=64)
def _reciprocals(k_param: float, count: int, bits: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    floats = tuple(1.0 / (k_param + rank) for rank in range(1, count + 1))
    return floats, tuple(int(ldexp(value, bits)) for value in floats)


def _check_k_param(k_param: float) -> None:
    # The upper bound keeps infinity out, and slips: with 1e9 a rank hardly counts any more.
    if isinstance(k_param, bool) or not isinstance(k_param, (int, float)) or not 0 <= k_param < 1e9:
        raise InputError(f"k_param is {k_param!r}; pass a number ≥ 0 (60 is the paper's).")
