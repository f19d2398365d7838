"""Contributions added up into one fused list, with a ledger that is written when it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum
from operator import neg
from typing import Any

from resift.fusion.lists import RankedList, checked_k
from resift.types import Hit, Step, _Draft

Total = Callable[[list[float]], float]
Entry = tuple[float, str, Hit]
"""(negative total, key, the hit that lends its text and metadata)"""


def fuse_values(
    lists: Sequence[RankedList],
    values: Sequence[Sequence[float]],
    *,
    stage: str,
    k: int | None = None,
    total: Total = fsum,
) -> list[Hit]:
    """Fuse: per list one value per hit, totalled per key, sorted by (-total, id).

    fsum is the default because plain addition depends on the order of the lists and breaks exact ties.
    """
    checked_k(k)
    single, several, firsts = _gathered(lists, values)
    if total is not fsum:
        single = {key: total([value]) for key, value in single.items()}
    for key, parts in several.items():
        single[key] = parts[0] + parts[1] if total is fsum and len(parts) == 2 else total(parts)
    # Both dicts were filled in step, so their values belong together.
    order = list(zip(map(neg, single.values()), single, firsts.values(), strict=True))
    by_id = not lists or lists[0].by_id
    if by_id:
        order.sort()  # keys are ids, and unique: hits are never compared
    else:
        order.sort(key=lambda entry: (entry[0], entry[2].id, entry[1]))
    return _fused(order[:k], Fusion(lists, values, order, stage), by_id=by_id)


def _gathered(
    lists: Sequence[RankedList], values: Sequence[Sequence[float]]
) -> tuple[dict[str, float], dict[str, list[float]], dict[str, Hit]]:
    """Return the first value of each key, all values of keys in several lists, and each key's first hit."""
    single: dict[str, float] = {}
    several: dict[str, list[float]] = {}
    firsts: dict[str, Hit] = {}
    for ranked, contributions in zip(lists, values, strict=True):
        for key, hit, value in zip(ranked.keys, ranked.hits, contributions, strict=True):
            if key not in single:
                single[key] = value
                firsts[key] = hit
                continue
            if key in several:
                several[key].append(value)
            else:
                several[key] = [single[key], value]
            if not firsts[key].text:
                firsts[key] = _with_text(firsts[key], hit)
    return single, several, firsts


class Fusion:
    """What a fusion did, kept so that any hit's steps can be told later."""

    __slots__ = ("_places", "_ranks", "lists", "order", "stage", "values")

    def __init__(
        self,
        lists: Sequence[RankedList],
        values: Sequence[Sequence[float]],
        order: Sequence[Entry],
        stage: str,
    ) -> None:
        self.lists = lists
        self.values = values
        self.order = order
        self.stage = stage
        self._places: list[dict[str, int]] | None = None
        self._ranks: dict[str, int] = {}

    def steps(self, key: str) -> tuple[Step, ...]:
        """Return the whole way of one hit: what it brought along, its parts, its total."""
        if self._places is None:
            self._ranks = {key: rank for rank, (_, key, _) in enumerate(self.order, start=1)}
            self._places = [{key: at for at, key in enumerate(ranked.keys)} for ranked in self.lists]
        earlier: list[Step] = []
        parts: list[Step] = []
        for number, (ranked, places) in enumerate(zip(self.lists, self._places, strict=True), start=1):
            at = places.get(key)
            if at is not None:
                name = ranked.name or f"list {number}"
                rank = ranked.ranks[at]
                earlier.extend(_brought(ranked.hits[at], name, rank, _repeats(ranked, key)))
                parts.append(Step(self.stage, name, rank, self.values[number - 1][at]))
        rank = self._ranks[key]
        return (*earlier, *parts, Step(self.stage, "", rank, -self.order[rank - 1][0]))


class _ByKey:
    """The steps of one key, for fusions in which a hit's key is not its id."""

    __slots__ = ("fusion", "key")

    def __init__(self, fusion: Fusion, key: str) -> None:
        self.fusion = fusion
        self.key = key

    def steps(self, id: str) -> tuple[Step, ...]:
        """Return the steps of the key, whatever the hit's id is."""
        return self.fusion.steps(self.key)


def _fused(order: Sequence[Entry], fusion: Fusion, *, by_id: bool) -> list[Hit]:
    """Build the hits in place: this loop is what a fusion's time goes into (see types.draft)."""
    fused: list[Hit] = []
    for negative, key, first in order:
        made: Any = _Draft()
        made.id = first.id
        made.text = first.text
        made.score = -negative
        made.source = first.source
        made.metadata = first.metadata
        made.ledger = fusion if by_id else _ByKey(fusion, key)
        made.__class__ = Hit
        fused.append(made)
    return fused


def _with_text(first: Hit, other: Hit) -> Hit:
    if not other.text:
        return first
    return Hit(first.id, other.text, first.score, first.source, first.metadata, first.ledger)


def _brought(hit: Hit, name: str, rank: int, repeats: int) -> tuple[Step, ...]:
    steps = hit.ledger.steps or (Step("retrieve", name, rank, hit.score),)
    if not repeats:
        return steps
    return (*steps[:-1], steps[-1]._replace(note=f"listed {repeats + 1} times, counted once"))


def _repeats(ranked: RankedList, key: str) -> int:
    return ranked.duplicates.get(key, 0)
