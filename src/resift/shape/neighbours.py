"""Neighbours: candidates that are alike answer the same questions (findings: docs/blending.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resift.errors import require

NEIGHBOURS = 3
"""How many of the nearest candidates speak for a hit, as measured."""

KNOWN = 5
"""How many are known per hit, so that there are enough when some were cut."""

_DIGITS = 5  # of a cosine: sums of float32 products agree this far on every machine

Near = Mapping[str, Sequence[tuple[str, float]]]
"""Per id the nearest other candidates with their cosines, the nearest first."""


def nearest(vectors: Mapping[str, Any]) -> dict[str, tuple[tuple[str, float], ...]]:
    """Return the nearest others of each id by cosine, ties by id; none at a right angle or beyond."""
    ids = sorted(vectors)
    if len(ids) < 2:
        return {}
    np = require("numpy", extra="local")
    rows = np.asarray([vectors[id] for id in ids], dtype=np.float32)
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    rows = rows / np.where(lengths > 0, lengths, 1)
    cosines = (rows @ rows.T).round(_DIGITS)
    np.fill_diagonal(cosines, -np.inf)
    # Stable, and the rows stand by id.
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :KNOWN]
    values = np.take_along_axis(cosines, order, axis=1).astype(np.float64).round(_DIGITS)
    return {
        id: tuple((ids[at], value) for at, value in zip(others, said, strict=True) if value > 0)
        for id, others, said in zip(ids, order.tolist(), values.tolist(), strict=True)
    }


def pulls(ids: Sequence[str], values: Sequence[float], near: Near) -> list[float]:
    """Return how far each hit's value is below the mean of its nearest in the pool, weighted by cosine.

    0 for a hit whose neighbours are not known or not in the pool.
    """
    value_of = dict(zip(ids, values, strict=True))
    pulled = []
    for id, own in zip(ids, values, strict=True):
        total = weights = 0.0
        left = NEIGHBOURS
        for other, cosine in near.get(id, ()):
            if other in value_of and cosine > 0:
                total += cosine * (value_of[other] - own)
                weights += cosine
                left -= 1
                if not left:
                    break
        pulled.append(total / weights if weights else 0.0)
    return pulled
