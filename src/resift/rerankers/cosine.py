"""Cosine of one vector with many: by numpy where the vectors are its arrays, in plain Python otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

from resift._internal.arrays import Array, np
from resift.errors import InputError

Vector = Sequence[float] | Array


def cosines(query: Vector, vectors: Sequence[Vector | None]) -> list[float]:
    """Return the cosine of the query's vector with each vector; 0 where one of the two has no length.

    Raises InputError for vectors of another length or with values that are no finite numbers.
    """
    known = [vector for vector in vectors if vector is not None and len(vector) == len(query)]
    if len(known) < len(vectors):
        raise InputError(f"vectors differ in length; the query's has {len(query)} values.")
    found = _by_numpy(query, known) if hasattr(query, "dtype") else _plainly(query, known)
    if not all(map(math.isfinite, found)):
        raise InputError("a vector has a value that is no finite number.")
    # Rounding can lead a hair out of range.
    return [max(-1.0, min(1.0, value)) for value in found]


def _plainly(query: Vector, vectors: Sequence[Vector]) -> list[float]:
    own = math.hypot(*query)
    lengths = [own * math.hypot(*vector) for vector in vectors]
    return [
        sum(map(mul, query, vector)) / length if length else 0.0
        for vector, length in zip(vectors, lengths, strict=True)
    ]


def _by_numpy(query: Vector, vectors: Sequence[Vector]) -> list[float]:
    matrix = np.asarray([np.asarray(vector, dtype=np.float64) for vector in vectors])
    row = np.asarray(query, dtype=np.float64)
    # One sum per row: a matrix product may round differently for another number of rows.
    dots = (matrix * row).sum(axis=1) if len(vectors) else np.zeros(0)
    lengths = np.sqrt((matrix * matrix).sum(axis=1)) * math.sqrt(float((row * row).sum()))
    found: list[float] = np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths != 0).tolist()
    return found
