"""Contributions added up into one fused list, with the record of what each total is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import cast

from resift.errors import InputError
from resift.ranking.fusion.lists import RankedList, labels
from resift.types import Fused, Hit, StageKind, StageRecord, cut_record, with_scores
from resift.types.hit import some_lack_text
from resift.validation import check_k

Total = Callable[[list[float]], float]

TOO_LARGE = "The scores are too large to add up. Put them on one scale: normalize='min-max'."


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Values times 2**bits, all of them integers: these add up exactly, in any order."""

    integers: Sequence[Sequence[int]]
    bits: int


def fuse_values(
    lists: Sequence[RankedList],
    values: Sequence[Sequence[float]],
    *,
    name: str,
    k: int | None = None,
    total: Total = fsum,
    fixed_point: FixedPoint | None = None,
    weights: Mapping[str, float] | None = None,
    evidence: Mapping[str, float] | None = None,
    note: str = "",
) -> Fused:
    """Fuse: per list one value per hit, totaled per key, sorted by (-total, id).

    fsum is the default because plain addition depends on the order of the lists and breaks exact ties.
    `fixed_point` are the same values for a caller that has them as integers: same sums, less time.
    `weights`, `evidence` and `note` go into the record.
    """
    firsts: dict[str, Hit] = {}
    for ranked in reversed(lists):  # the first list that has a key provides its hit
        firsts.update(ranked.hits)
    totals = (
        _totals(lists, values, total) if fixed_point is None else _exact_totals(lists, fixed_point, firsts)
    )
    # By id, as nearly always, keys are ids: nothing has to be looked up or merged.
    by_id = not lists or lists[0].by_id
    # Sorting is stable: by id first, then by total, is by (-total, id).
    keys = sorted(totals) if by_id else sorted(totals, key=lambda key: (firsts[key].id, key))
    keys.sort(key=totals.__getitem__, reverse=True)
    hits = [firsts[key] for key in keys]
    names = labels([ranked.name for ranked in lists])
    record = StageRecord(
        kind=StageKind.FUSE,
        name=name,
        ids=tuple(keys) if by_id else tuple([hit.id for hit in hits]),
        scores=tuple([totals[key] for key in keys]),
        parts=_parts(lists, names, values, None if by_id else firsts),
        notes=_duplicates(lists, names, firsts) if any(ranked.duplicates for ranked in lists) else {},
        merged={} if by_id else _merged(lists, firsts),
        weights=weights or {},
        evidence=evidence or {},
        note=note,
    )
    return fused_list(hits, record, k=k, texts=_texts(lists, keys, hits))


def fused_list(
    hits: Sequence[Hit], record: StageRecord, *, k: int | None, texts: Mapping[int, str] | None = None
) -> Fused:
    """Return the best k with the record's scores; `texts` are for hits, by place, that have none."""
    # Only what is returned is copied; the record has all of them.
    kept = len(hits) if k is None else check_k(k)
    made = with_scores(hits[:kept], record.scores[:kept])
    for at, text in (texts or {}).items():
        if at < kept:
            made[at] = replace(made[at], text=text)
    return Fused(made, record, *cut_record(record.ids, kept))


def _exact_totals(
    lists: Sequence[RankedList], fixed_point: FixedPoint, keys: Iterable[str]
) -> dict[str, float]:
    """Return each key's total, rounded once: integers add up exactly, and the power of two is exact."""
    sums = dict.fromkeys(keys, 0)
    if lists:
        # Nothing of the first list has been added to yet, so it goes in at once.
        sums.update(zip(lists[0].hits, fixed_point.integers[0], strict=True))
    for ranked, integers in zip(lists[1:], fixed_point.integers[1:], strict=True):
        for key, integer in zip(ranked.hits, integers, strict=True):
            sums[key] += integer
    unit = 2.0**-fixed_point.bits
    return {key: integer * unit for key, integer in sums.items()}


def _totals(lists: Sequence[RankedList], values: Sequence[Sequence[float]], total: Total) -> dict[str, float]:
    if total is fsum and len(lists) == 2:
        # The sum of two floats is rounded once, as fsum rounds it.
        totals = dict(zip(lists[0].hits, values[0], strict=True))
        for key, value in zip(lists[1].hits, values[1], strict=True):
            totals[key] = totals[key] + value if key in totals else value
    else:
        parts: dict[str, list[float]] = {}
        for ranked, contributions in zip(lists, values, strict=True):
            for key, value in zip(ranked.hits, contributions, strict=True):
                if key in parts:
                    parts[key].append(value)
                else:
                    parts[key] = [value]
        try:
            totals = {key: total(added) for key, added in parts.items()}
        except OverflowError:
            raise InputError(TOO_LARGE) from None
    if not all(map(math.isfinite, totals.values())):
        raise InputError(TOO_LARGE)
    return totals


def _parts(
    lists: Sequence[RankedList],
    names: Sequence[str],
    values: Sequence[Sequence[float]],
    firsts: Mapping[str, Hit] | None,
) -> dict[str, dict[str, float]]:
    """Return list -> id -> what that list added."""
    # By id and not by place: most hits are in some of the lists only.
    parts: dict[str, dict[str, float]] = {}
    for ranked, name, column in zip(lists, names, values, strict=True):
        if firsts is None:
            # A copy of the table with other values never grows, which saves a third of the time.
            added = cast("dict[str, float]", dict(ranked.hits))
            added.update(zip(added, column, strict=True))
            parts[name] = added
        else:
            parts[name] = dict(zip((firsts[key].id for key in ranked.hits), column, strict=True))
    return parts


def _texts(lists: Sequence[RankedList], keys: Sequence[str], hits: Sequence[Hit]) -> dict[int, str]:
    """Return place -> the first text that any list has, for hits whose own list has none."""
    if not some_lack_text(hits):
        return {}
    known = {key: hit.text for ranked in reversed(lists) for key, hit in ranked.hits.items() if hit.text}
    return {at: known[key] for at, key in enumerate(keys) if key in known and not hits[at].text}


def _duplicates(
    lists: Sequence[RankedList], names: Sequence[str], firsts: Mapping[str, Hit]
) -> dict[str, str]:
    """Return id -> how often a list repeats it, for those that are repeated."""
    notes: dict[str, str] = {}
    for ranked, name in zip(lists, names, strict=True):
        for key, repeats in ranked.duplicates.items():
            id = firsts[key].id
            note = f"listed {repeats + 1} times by {name}, counted once"
            notes[id] = f"{notes[id]}; {note}" if id in notes else note
    return notes


def _merged(lists: Sequence[RankedList], firsts: Mapping[str, Hit]) -> dict[str, str]:
    """Return id -> the id that stands for it, where hits of different ids are the same."""
    return {
        hit.id: firsts[key].id
        for ranked in lists
        for key, hit in ranked.hits.items()
        if hit.id != firsts[key].id
    }
