"""Postings of a term and their sums: with numpy in one sweep, without it in plain Python, same to the bit."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

from resift.stores.sqlite_view import RowView
from resift.text.bm25 import BM25, idf


class Occurrences(NamedTuple):
    """The rows that hold a term in ascending order, and how often each; arrays of numpy or plain ones."""

    rows: Any
    counts: Any


class Postings(NamedTuple):
    """The places of the documents that hold a term, and what the term adds to the score of each."""

    places: array[int]
    weights: array[float]

    @property
    def bytes(self) -> int:
        """Memory that the postings take."""
        return len(self.places) * (self.places.itemsize + self.weights.itemsize)


def occurrences_of(rows: str) -> Occurrences:
    """Return the occurrences of "3,3,7": a row number each time the term occurs."""
    np = _numpy()
    if np is None:
        counts = Counter(map(int, rows.split(","))) if rows else Counter()
        wanted = sorted(counts)
        return Occurrences(wanted, [counts[row] for row in wanted])
    return Occurrences(*np.unique(np.fromstring(rows, dtype=np.int64, sep=","), return_counts=True))


def merged(found: Sequence[Occurrences]) -> Occurrences:
    """Return the occurrences of several terms as those of one."""
    if len(found) == 1:
        return found[0]
    np = _numpy()
    if np is None:
        counts: Counter[int] = Counter()
        for one in found:
            counts.update(dict(zip(one.rows, one.counts, strict=True)))
        return Occurrences(sorted(counts), [counts[row] for row in sorted(counts)])
    rows, where = np.unique(np.concatenate([one.rows for one in found]), return_inverse=True)
    summed = np.bincount(where, weights=np.concatenate([one.counts for one in found]), minlength=len(rows))
    return Occurrences(rows, summed.astype(np.int64))


def postings_of(found: Occurrences, view: RowView, model: BM25) -> Postings:
    """Weigh a term by its occurrences; rows that are no longer there count nowhere."""
    np = _numpy()
    if np is None:
        return _plain_postings(found, view, model)
    places, present = view.places_of(found.rows)
    lengths = view.lengths_array()[places]
    rarity = idf(view.facts.documents, len(places))
    weights = model.weight(found.counts[present], lengths, idf=rarity, mean_length=view.facts.mean_length)
    return Postings(array("i", places.astype(np.int32).tobytes()), array("d", weights.tobytes()))


def best_of(
    view: RowView, postings: Sequence[Postings], k: int, allowed: Sequence[int] | None
) -> list[tuple[int, float]]:
    """Add up the postings and return (row, score) of the best k, and of all that tie with the last."""
    np = _numpy()
    if np is None:
        return _plain_best(view, postings, k, allowed)
    scores = np.zeros(len(view.lengths))
    for one in postings:
        # A document stands once in a term's postings, so plain indexed addition is right.
        scores[np.frombuffer(one.places, dtype=np.int32)] += np.frombuffer(one.weights)
    if allowed is not None:
        scores *= view.mask(allowed)
    places = np.flatnonzero(scores)
    if len(places) > k:
        last = np.partition(scores[places], len(places) - k)[len(places) - k]
        places = places[scores[places] >= last]
    return list(zip(view.rows_at(places).tolist(), scores[places].tolist(), strict=True))


def _plain_postings(found: Occurrences, view: RowView, model: BM25) -> Postings:
    pairs = [(view.place_of(row), count) for row, count in zip(found.rows, found.counts, strict=True)]
    present = [(place, count) for place, count in pairs if place >= 0]
    rarity, mean = idf(view.facts.documents, len(present)), view.facts.mean_length
    weights = (
        model.weight(count, view.lengths[place], idf=rarity, mean_length=mean) for place, count in present
    )
    return Postings(array("i", (place for place, _ in present)), array("d", weights))


def _plain_best(
    view: RowView, postings: Sequence[Postings], k: int, allowed: Sequence[int] | None
) -> list[tuple[int, float]]:
    scores: dict[int, float] = {}
    for one in postings:
        for place, weight in zip(one.places, one.weights, strict=True):
            scores[place] = scores.get(place, 0.0) + weight
    passing = None if allowed is None else set(allowed)
    rows = ((view.row_at(place), score) for place, score in scores.items())
    found = [(row, score) for row, score in rows if passing is None or row in passing]
    found.sort(key=lambda one: -one[1])
    return [one for one in found if one[1] >= found[min(k, len(found)) - 1][1]]


def _numpy() -> ModuleType | None:
    try:
        import numpy
    except ModuleNotFoundError:
        return None
    return numpy
