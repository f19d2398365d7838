"""BM25 as Lucene computes it (Robertson & Zaragoza, 2009): the formula and its two parameters.

There are two sets of parameters:

- A store ranks a complete collection. k1 = 0.9 and b = 0.4 are the values of published baselines for passages
  (Anserini's defaults for MS MARCO and BEIR).
- A reranker sees one pool in which every text has the query's words, so frequency and length are what
  distinguishes texts. The higher textbook values k1 = 1.5 and b = 0.75 give these more weight.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from resift.errors import InputError


class BM25(NamedTuple):
    """The two parameters of the formula; the defaults are for a complete collection."""

    k1: float = 0.9
    b: float = 0.4

    def validate(self) -> BM25:
        """Return itself, or raise InputError for values outside of the formula's range."""
        if not (0 <= self.k1 < math.inf and 0 <= self.b <= 1):
            raise InputError(f"k1 is {self.k1} and b is {self.b}; k1 must be ≥ 0 and b from 0 to 1.")
        return self

    def weight(self, tf: Any, length: Any, *, idf: float, mean_length: float) -> Any:
        """Return what one term adds to a document's score; takes numbers or arrays."""
        return idf * tf * (self.k1 + 1.0) / (tf + self.k1 * (1.0 - self.b + self.b * length / mean_length))


POOL = BM25(k1=1.5, b=0.75)


def idf(documents: int, with_term: int) -> float:
    """Return the inverse document frequency; always positive, so that more matching words never hurt."""
    return math.log(1.0 + (documents - with_term + 0.5) / (with_term + 0.5))
