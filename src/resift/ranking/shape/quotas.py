"""Document fairness and source-type diversity: quotas on the first k places."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from resift.errors import InputError
from resift.events import Sink
from resift.ranking.shape.shaped import Shaped, shaped
from resift.types import Hit
from resift.validation import check_k, check_options, option

STAGE = "balance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How many of the first k places one value of a metadata key may and must have.

    `at_most` is a number, `share` a part of k (rounded up); the smaller counts. `at_least` holds for every
    value in the pool, `required` for single values. A hit without the key counts under its source, its id
    (which makes it a document of its own), or not at all.
    """

    key: str = option("The metadata key, such as document or source_type.")
    at_most: int | None = option("Most places of one value.", default=None, min=1)
    share: float | None = option("Most places of one value, as a part of k.", default=None, gt=0, max=1)
    at_least: int = option("Fewest places of each value in the pool.", default=0, min=0)
    required: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    absent: Literal["source", "id", "exempt"] = option(
        "What a hit without the key counts under.", default="source"
    )

    def __post_init__(self) -> None:
        check_options(self)
        if any(number < 0 for number in self.required.values()):
            raise InputError("Quota required must be 0 or more for each value.")

    def value(self, hit: Hit) -> str | None:
        """Return what the hit counts under, or None when the quota does not concern it."""
        found = hit.metadata.get(self.key)
        if found is not None and found != "":
            return found if type(found) is str else str(found)
        if self.absent == "source":
            return hit.source
        return f"id:{hit.id}" if self.absent == "id" else None

    def cap(self, k: int) -> int:
        """Return the most places one value may have among k."""
        by_share = k if self.share is None else math.ceil(self.share * k)
        return min(k, by_share, k if self.at_most is None else self.at_most)


FAIRNESS = Quota(key="document", share=0.5, absent="id")
"""No document takes more than half of the places."""

DIVERSITY = Quota(key="source_type", at_least=1, absent="source")
"""Every source type in the pool has a place."""


def balance(
    hits: Sequence[Hit],
    *,
    k: int,
    quotas: Sequence[Quota] = (FAIRNESS, DIVERSITY),
    protected: Collection[str] | Mapping[str, str] = (),
    sink: Sink | None = None,
) -> Shaped:
    """Reorder so that the first k satisfy the quotas and hold the protected ids; nothing is cut.

    Chosen hits keep their order, and so do the others behind them. `protected` may map an id to the reason
    that the record gives when it moves up. Quotas hold whenever they can be met: exactly so for one quota,
    and for nested ones (documents of one source type each). What cannot be met is relaxed; `notes` and the
    record say so.
    """
    order, general, single = _arranged(hits, k=check_k(k), quotas=quotas, protected=protected)
    return shaped(STAGE, hits, order, notes=general, by_id=single, protected=frozenset(protected), sink=sink)


def _arranged(
    hits: Sequence[Hit], *, k: int, quotas: Sequence[Quota], protected: Collection[str] | Mapping[str, str]
) -> tuple[list[Hit], tuple[str, ...], dict[str, str]]:
    """Return the hits in balanced order, what had to be relaxed, and notes for single hits."""
    slots = min(k, len(hits))
    table = _Table(hits, quotas, k)
    chosen = [at for at, hit in enumerate(hits) if hit.id in protected][:slots] if protected else []
    for at in chosen:
        table.take(at)
    _fill(hits, table, chosen, slots)
    taken = set(chosen)
    if len(chosen) < slots:
        more = [at for at in range(len(hits)) if at not in taken][: slots - len(chosen)]
        taken.update(more)
    first = sorted(taken)
    general, single = _notes(hits, first, quotas, k)
    if isinstance(protected, Mapping):
        single |= {
            hits[at].id: protected[hits[at].id] for at in first if at >= k and hits[at].id in protected
        }
    order = [hits[at] for at in first] + [hit for at, hit in enumerate(hits) if at not in taken]
    return order, general, single


class _Table:
    """Who has how many places, and how many are still owed."""

    def __init__(self, hits: Sequence[Hit], quotas: Sequence[Quota], k: int) -> None:
        columns = [[quota.value(hit) for hit in hits] for quota in quotas]
        self.values = list(zip(*columns, strict=True)) if columns else [()] * len(hits)
        self.caps = [quota.cap(k) for quota in quotas]
        self.taken: list[Counter[str | None]] = [Counter() for _ in quotas]
        self.owed = [self._owed(number, quota) for number, quota in enumerate(quotas)]
        self.unmet = sum(sum(owed.values()) for owed in self.owed)

    def _owed(self, number: int, quota: Quota) -> dict[str | None, int]:
        """Return per value how many places it is owed: no more than the caps let it have."""
        if not quota.at_least and not quota.required:
            return {}
        present = Counter(row[number] for row in self.values)
        present.pop(None, None)
        owed: dict[str | None, int] = {}
        for value, size in present.items():
            wanted = min(size, self.caps[number], max(quota.at_least, quota.required.get(str(value), 0)))
            # One place of a value that is there can always be had; more may meet another quota's cap.
            owed[value] = wanted if wanted <= 1 else min(wanted, self._obtainable(number, value))
        return owed

    def _obtainable(self, number: int, value: str | None) -> int:
        rows = [row for row in self.values if row[number] == value]
        most = len(rows)
        for other, cap in enumerate(self.caps):
            if other != number:
                sizes = Counter(row[other] for row in rows)
                most = min(most, sum(n if key is None else min(n, cap) for key, n in sizes.items()))
        return most

    def fits(self, at: int) -> bool:
        """Whether no value of the hit has all its places already."""
        return all(
            value is None or self.taken[number][value] < self.caps[number]
            for number, value in enumerate(self.values[at])
        )

    def pays(self, at: int) -> int:
        """Return how many owed places the hit would pay."""
        return sum(self.owed[number].get(value, 0) > 0 for number, value in enumerate(self.values[at]))

    def take(self, at: int) -> None:
        """Give the hit a place."""
        for number, value in enumerate(self.values[at]):
            self.taken[number][value] += 1
            if self.owed[number].get(value, 0) > 0:
                self.owed[number][value] -= 1
                self.unmet -= 1


def _fill(hits: Sequence[Hit], table: _Table, chosen: list[int], slots: int) -> None:
    """Take hits in order, as long as enough places remain for those that are owed one."""
    done = set(chosen)
    waiting: deque[int] = deque()
    for at in range(len(hits)):
        if at in done:
            continue
        waiting.append(at)
        if table.pays(at) and table.fits(at) and len(chosen) < slots:
            waiting.pop()
            table.take(at)
            chosen.append(at)
        # Who was passed over for the sake of others comes before everybody behind them.
        while waiting and slots - len(chosen) > table.unmet:
            first = waiting.popleft()
            if table.fits(first):
                table.take(first)
                chosen.append(first)


def _notes(
    hits: Sequence[Hit], first: Sequence[int], quotas: Sequence[Quota], k: int
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Say per quota and per hit where the first k break a quota."""
    general: list[str] = []
    single: dict[str, str] = {}
    for quota in quotas:
        cap, seen = quota.cap(k), Counter[str]()
        for at in first:
            value = quota.value(hits[at])
            if value is None:
                continue
            seen[value] += 1
            if seen[value] > cap:
                single[hits[at].id] = f"quota relaxed: more than {cap} of {quota.key} {value!r}"
        general += [f"{quota.key} {v!r}: {n} of at most {cap}" for v, n in sorted(seen.items()) if n > cap]
        general += _short(hits, quota, seen)
    return tuple(general), single


def _short(hits: Sequence[Hit], quota: Quota, seen: Counter[str]) -> list[str]:
    wanted = dict(quota.required)
    if quota.at_least:
        for value in {quota.value(hit) for hit in hits} - {None}:
            wanted[str(value)] = max(quota.at_least, wanted.get(str(value), 0))
    return [
        f"{quota.key} {value!r}: {seen[value]} of at least {number}"
        for value, number in sorted(wanted.items())
        if seen[value] < number
    ]
