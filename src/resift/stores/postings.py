"""Postings of a term and their sums: with numpy in one sweep, without it in plain Python, same to the bit."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from resift.stores.bm25 import BM25, idf


class Postings(NamedTuple):
    """The documents that hold a term, by their place in the index, and what the term adds to each."""

    places: array[int]
    weights: array[float]

    @property
    def bytes(self) -> int:
        """Memory that the postings take."""
        return len(self.places) * (self.places.itemsize + self.weights.itemsize)


def postings_of(docs: str, rows: array[int], lengths: array[int], model: BM25) -> Postings:
    """Weigh a term: `docs` is "3,3,7", a row number per occurrence; `rows` and `lengths` are the index's."""
    np = _numpy()
    if np is None:
        return _plain_postings(docs, rows, lengths, model)
    found, tf = np.unique(np.fromstring(docs, dtype=np.int64, sep=","), return_counts=True)
    places = np.searchsorted(np.frombuffer(rows, dtype=np.int64), found).astype(np.int32)
    sizes = np.frombuffer(lengths, dtype=np.int32)
    weights = model.weight(
        tf, sizes[places], idf=idf(len(rows), len(found)), mean_length=_mean(np.sum(sizes), rows)
    )
    return Postings(array("i", places.tobytes()), array("d", weights.tobytes()))


def best_of(
    rows: array[int], postings: Sequence[Postings], k: int, allowed: Sequence[int] | None
) -> list[tuple[int, float]]:
    """Add up the postings and return (row, score) of the best k, and of all that tie with the last."""
    np = _numpy()
    if np is None:
        return _plain_best(rows, postings, k, allowed)
    scores = np.zeros(len(rows))
    for one in postings:
        # A document stands once in a term's postings, so plain indexed addition is right.
        scores[np.frombuffer(one.places, dtype=np.int32)] += np.frombuffer(one.weights)
    numbers = np.frombuffer(rows, dtype=np.int64)
    if allowed is not None:
        scores[~np.isin(numbers, np.asarray(allowed, dtype=np.int64))] = 0.0
    places = np.flatnonzero(scores)
    if len(places) > k:
        last = np.partition(scores[places], len(places) - k)[len(places) - k]
        places = places[scores[places] >= last]
    return list(zip(numbers[places].tolist(), scores[places].tolist(), strict=True))


def _plain_postings(docs: str, rows: array[int], lengths: array[int], model: BM25) -> Postings:
    counts = Counter(map(int, docs.split(","))) if docs else Counter()
    wanted = sorted(counts)
    place_of = {row: place for place, row in enumerate(rows) if row in counts}
    places = array("i", (place_of[row] for row in wanted))
    rarity, mean = idf(len(rows), len(counts)), _mean(sum(lengths), rows)
    pairs = zip(wanted, places, strict=True)
    weights = (
        model.weight(counts[row], lengths[place], idf=rarity, mean_length=mean) for row, place in pairs
    )
    return Postings(places, array("d", weights))


def _plain_best(
    rows: array[int], postings: Sequence[Postings], k: int, allowed: Sequence[int] | None
) -> list[tuple[int, float]]:
    scores: dict[int, float] = {}
    for one in postings:
        for place, weight in zip(one.places, one.weights, strict=True):
            scores[place] = scores.get(place, 0.0) + weight
    passing = None if allowed is None else set(allowed)
    found = [
        (rows[place], score) for place, score in scores.items() if passing is None or rows[place] in passing
    ]
    found.sort(key=lambda one: -one[1])
    return [one for one in found if one[1] >= found[min(k, len(found)) - 1][1]]


def _mean(total: Any, rows: array[int]) -> float:
    return int(total) / len(rows) if total else 1.0


def _numpy() -> Any:
    try:
        import numpy
    except ModuleNotFoundError:
        return None
    return numpy
