"""BM25 as Lucene computes it (Robertson & Zaragoza, 2009): the formula only, no index and no tokens."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from resift.errors import InputError


class BM25(NamedTuple):
    """The two knobs; the defaults are those of the published baselines for short scientific texts."""

    k1: float = 0.9
    b: float = 0.4

    def checked(self) -> BM25:
        """Return itself, or raise InputError for values outside the formula's range."""
        if not (0 <= self.k1 < math.inf and 0 <= self.b <= 1):
            raise InputError(f"k1 is {self.k1} and b is {self.b}; k1 must be ≥ 0 and b from 0 to 1.")
        return self

    def weight(self, tf: Any, length: Any, *, idf: float, mean_length: float) -> Any:
        """Return what one term adds to a document's score; takes numbers or arrays."""
        return idf * tf * (self.k1 + 1.0) / (tf + self.k1 * (1.0 - self.b + self.b * length / mean_length))


def idf(documents: int, with_term: int) -> float:
    """Return how much a term tells: always positive, so that more matching words never hurt."""
    return math.log(1.0 + (documents - with_term + 0.5) / (with_term + 0.5))
