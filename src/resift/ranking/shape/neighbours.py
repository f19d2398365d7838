"""Neighbours: candidates that are alike answer the same questions (findings: docs/blending.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from resift._internal.arrays import Array
from resift.errors import require

NEIGHBOURS = 3
"""How many of the nearest candidates speak for a hit, as measured."""

KNOWN = 5
"""How many are known per hit, so that there are enough when some were cut."""

_PARTS = 100_000  # of a cosine: sums of float32 products agree this far on every machine

Near = Mapping[str, Sequence[tuple[str, float]]]
"""Per id the nearest other candidates with their cosines, the nearest first."""


def nearest(vectors: Mapping[str, Array]) -> dict[str, tuple[tuple[str, float], ...]]:
    """Return the nearest others of each id by cosine, ties by id; none at a right angle or beyond."""
    ids = sorted(vectors)
    if len(ids) < 2:
        return {}
    np = require("numpy", extra="local")
    rows = np.asarray([vectors[id] for id in ids], dtype=np.float32)
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    rows = rows / np.where(lengths > 0, lengths, 1)
    # Row by row: such small products stay in this thread, and waiting for others may take ten times as long.
    cosines = np.stack([rows @ row for row in rows])
    # Whole numbers with the place in their last digits: one sort, by cosine and then by id.
    size, most = len(ids), min(KNOWN, len(ids) - 1)
    keys = np.arange(size) - size * np.rint(cosines * _PARTS).astype(np.int64)
    np.fill_diagonal(keys, np.iinfo(np.int64).max)
    best = np.sort(np.partition(keys, most, axis=1)[:, :most], axis=1)
    places = best % size
    values = (places - best) // size / _PARTS
    return {
        id: tuple((ids[at], value) for at, value in zip(others, said, strict=True) if value > 0)
        for id, others, said in zip(ids, places.tolist(), values.tolist(), strict=True)
    }


def pulls(
    ids: Sequence[str],
    values: Sequence[float],
    near: Near,
    *,
    count: int = NEIGHBOURS,
    sinking: float = 0.0,
) -> list[float]:
    """Return how far each hit's value is below the mean of its nearest in the pool, weighted by cosine.

    For a hit that is above that mean, `sinking` times the distance, downwards. 0 where its neighbours are
    not known or not in the pool.
    """
    value_of = dict(zip(ids, values, strict=True))
    pulled: list[float] = []
    for id, own in zip(ids, values, strict=True):
        others = near.get(id)
        if not others:
            pulled.append(0.0)
            continue
        total = weights = 0.0
        left = count
        for other, cosine in others:
            value = value_of.get(other)
            if value is not None and cosine > 0:
                total += cosine * (value - own)
                weights += cosine
                left -= 1
                if not left:
                    break
        # Unless told so, weak company is no evidence against a hit: it may be the one answer.
        part = 1.0 if total > 0 else sinking
        pulled.append(part * (total / weights) if part and weights else 0.0)
    return pulled
