"""Contributions added up into one fused list, with a ledger that is written when it is read."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import fsum
from operator import neg
from typing import Any

from resift.fusion.lists import RankedList, checked_k
from resift.types import Hit, Step, _Draft

Total = Callable[[list[float]], float]
Entry = tuple[float, str, Hit]
"""(negative total, key, the hit that lends its text and metadata)"""


@dataclass(frozen=True, slots=True)
class Scaled:
    """Values times 2**bits, all of them whole numbers: these add up exactly, in any order."""

    wholes: Sequence[Sequence[int]]
    bits: int


def fuse_values(
    lists: Sequence[RankedList],
    values: Sequence[Sequence[float]],
    *,
    stage: str,
    k: int | None = None,
    total: Total = fsum,
    scaled: Scaled | None = None,
) -> list[Hit]:
    """Fuse: per list one value per hit, totalled per key, sorted by (-total, id).

    fsum is the default because plain addition depends on the order of the lists and breaks exact ties.
    `scaled` are the same values for a caller that has them as whole numbers: same sums, sooner.
    """
    checked_k(k)
    if scaled is None:
        totals, firsts = _totalled(lists, values, total)
        negatives = map(neg, totals.values())
    else:
        sums, firsts = _added(lists, scaled.wholes)
        # Rounded once, from int to float; the power of two is exact.
        negatives = map((-(2.0**-scaled.bits)).__mul__, map(float, sums.values()))
    # Both dicts were filled in step, so their values belong together.
    order = list(zip(negatives, firsts, firsts.values(), strict=True))
    by_id = not lists or lists[0].by_id
    if by_id:
        order.sort()  # keys are ids, and unique: hits are never compared
    else:
        order.sort(key=lambda entry: (entry[0], entry[2].id, entry[1]))
    return _fused(order[:k], Fusion(lists, values, [key for _, key, _ in order], stage), by_id=by_id)


def _added(
    lists: Sequence[RankedList], scaled: Sequence[Sequence[int]]
) -> tuple[dict[str, int], dict[str, Hit]]:
    """Return the sum of each key and the first hit of each key."""
    if not lists:
        return {}, {}
    # Nothing of the first list has been seen before, so it goes in at once.
    sums = dict(zip(lists[0].keys, scaled[0], strict=True))
    firsts = dict(zip(lists[0].keys, lists[0].hits, strict=True))
    for ranked, wholes in zip(lists[1:], scaled[1:], strict=True):
        for key, hit, whole in zip(ranked.keys, ranked.hits, wholes, strict=True):
            if key in sums:
                sums[key] += whole
            else:
                sums[key] = whole
                firsts[key] = hit
    return sums, firsts


def _totalled(
    lists: Sequence[RankedList], values: Sequence[Sequence[float]], total: Total
) -> tuple[dict[str, float], dict[str, Hit]]:
    """Return the total of each key's values and the first hit of each key."""
    parts: dict[str, list[float]] = {}
    firsts: dict[str, Hit] = {}
    for ranked, contributions in zip(lists, values, strict=True):
        for key, hit, value in zip(ranked.keys, ranked.hits, contributions, strict=True):
            if key in parts:
                parts[key].append(value)
            else:
                parts[key] = [value]
                firsts[key] = hit
    return {key: total(added) for key, added in parts.items()}, firsts


class Fusion:
    """What a fusion did, kept so that any hit's steps can be told later."""

    __slots__ = ("_places", "_ranks", "_texts", "keys", "lists", "stage", "values")

    def __init__(
        self,
        lists: Sequence[RankedList],
        values: Sequence[Sequence[float]],
        keys: Sequence[str],
        stage: str,
    ) -> None:
        self.lists = lists
        self.values = values
        self.keys = keys
        self.stage = stage
        self._places: list[dict[str, int]] | None = None
        self._ranks: dict[str, int] = {}
        self._texts: dict[str, str] | None = None

    def text(self, key: str) -> str:
        """Return the first text that any list has for the key."""
        if self._texts is None:
            self._texts = {
                key: hit.text
                for ranked in reversed(self.lists)
                for key, hit in zip(ranked.keys, ranked.hits, strict=True)
                if hit.text
            }
        return self._texts.get(key, "")

    def steps(self, hit: Hit) -> tuple[Step, ...]:
        """Return the whole way of a hit whose key is its id."""
        return self.steps_of(hit.id, hit.score)

    def steps_of(self, key: str, score: float) -> tuple[Step, ...]:
        """Return the whole way of a key: what its hits brought along, its parts, its total."""
        if self._places is None:
            self._ranks = {key: rank for rank, key in enumerate(self.keys, start=1)}
            self._places = [{key: at for at, key in enumerate(ranked.keys)} for ranked in self.lists]
        earlier: list[Step] = []
        parts: list[Step] = []
        for number, (ranked, places) in enumerate(zip(self.lists, self._places, strict=True), start=1):
            at = places.get(key)
            if at is not None:
                name = ranked.name or f"list {number}"
                rank = ranked.ranks[at]
                earlier.extend(_brought(ranked.hits[at], name, rank, ranked.duplicates.get(key, 0)))
                parts.append(Step(self.stage, name, rank, self.values[number - 1][at]))
        return (*earlier, *parts, Step(self.stage, "", self._ranks[key], score))


class _ByKey:
    """The steps of one key, for fusions in which a hit's key is not its id."""

    __slots__ = ("fusion", "key")

    def __init__(self, fusion: Fusion, key: str) -> None:
        self.fusion = fusion
        self.key = key

    def steps(self, hit: Hit) -> tuple[Step, ...]:
        """Return the steps of the key, whatever the hit's id is."""
        return self.fusion.steps_of(self.key, hit.score)


def _fused(order: Sequence[Entry], fusion: Fusion, *, by_id: bool) -> list[Hit]:
    """Build the hits in place: this loop is what a fusion's time goes into (see types.draft)."""
    fused: list[Hit] = []
    with _no_collection(len(order)):
        for negative, key, first in order:
            made: Any = _Draft()
            made.id = first.id
            made.text = first.text or fusion.text(key)
            made.score = -negative
            made.source = first.source
            made.metadata = first.metadata
            made.ledger = fusion if by_id else _ByKey(fusion, key)
            made.__class__ = Hit
            fused.append(made)
    return fused


@contextmanager
def _no_collection(size: int) -> Iterator[None]:
    """Hold the garbage collector back while many hits are built: it would walk them all again and again."""
    pause = size > 200 and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()


def _brought(hit: Hit, name: str, rank: int, repeats: int) -> tuple[Step, ...]:
    steps = hit.ledger.steps or (Step("retrieve", name, rank, hit.score),)
    if not repeats:
        return steps
    return (*steps[:-1], steps[-1]._replace(note=f"listed {repeats + 1} times, counted once"))
