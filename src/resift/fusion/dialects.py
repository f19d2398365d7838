"""How named engines compute reciprocal rank fusion, each as one row of data.

They disagree on the first rank, the constant, weights, what makes two hits the same, whose copy is
kept, and ties. A row here gives that engine's numbers bit for bit, on lists in that engine's order.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Literal

from resift.errors import InputError, did_you_mean
from resift.fusion.lists import Rankings, Weights, content_key, labels, list_names, list_weights
from resift.fusion.totals import fused_list
from resift.types import Fused, Hit, StageKind, StageRecord

DialectName = Literal["elasticsearch", "haystack", "langchain", "llama-index", "qdrant", "txtai", "weaviate"]
DbsfDialect = Literal["haystack", "llama-index", "qdrant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One engine's rule. `part` takes (rank from 0, weight, number of lists)."""

    part: Callable[[int, float, int], float]
    equal_weight: Callable[[int], float] = lambda lists: 1.0
    shares_weights: bool = False
    add: Callable[[float, float], float] = lambda total, part: total + part
    finish: Callable[[float, int], float] = lambda total, lists: total
    same: Callable[[Hit], str] = lambda hit: hit.id
    keeps: Literal["first", "last"] = "first"
    sorts_lists: bool = False
    ties: Literal["seen", "id", "score"] = "seen"


def _single(value: float) -> float:
    """Round to single precision, as an engine with 32-bit scores does."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def _qdrant_part(rank: int, weight: float, lists: int) -> float:
    return 1 / ((rank + 1.0) / weight + 2 - 1.0)


DIALECTS: dict[str, Dialect] = {
    "elasticsearch": Dialect(part=lambda rank, weight, _: weight / (60 + rank + 1), ties="id"),
    "haystack": Dialect(
        part=lambda rank, weight, lists: (weight * lists) / (61 + rank),
        equal_weight=lambda lists: 1 / lists,
        shares_weights=True,
        finish=lambda total, lists: total / (lists / 61),
        keeps="last",
    ),
    "langchain": Dialect(
        part=lambda rank, weight, _: weight / (rank + 1 + 60),
        equal_weight=lambda lists: 1 / lists,
        same=content_key,
    ),
    "llama-index": Dialect(
        part=lambda rank, _weight, _lists: 1.0 / (rank + 60.0),
        same=content_key,
        keeps="last",
        sorts_lists=True,
    ),
    "qdrant": Dialect(part=_qdrant_part),
    "txtai": Dialect(
        part=lambda rank, weight, _: (1.0 / (rank + 1)) * weight, equal_weight=lambda lists: 1 / lists
    ),
    "weaviate": Dialect(
        part=lambda rank, weight, _: _single(_single(weight) / (60 + rank)),
        equal_weight=lambda lists: 1 / lists,
        add=lambda total, part: _single(total + part),
        ties="score",
    ),
}


def dialect_named(name: str) -> str:
    """Return the canonical name of a dialect; case, spaces and dashes do not matter."""
    plain = {known.replace("-", ""): known for known in DIALECTS}
    asked = "".join(char for char in str(name).lower() if char.isalnum())
    if asked not in plain:
        raise InputError(f"Unknown dialect {name!r}. {did_you_mean(str(name).lower(), DIALECTS)}")
    return plain[asked]


@dataclass(slots=True)
class _Total:
    """One key on its way: what each list added, and the hits that were added up."""

    parts: dict[str, float] = field(default_factory=dict)
    hits: list[Hit] = field(default_factory=list)
    total: float = 0.0


def fuse_as(name: str, rankings: Rankings, *, k: int | None = None, weights: Weights | None = None) -> Fused:
    """Fuse as the named engine does, in the order of lists given."""
    dialect = DIALECTS[dialect_named(name)]
    names = list_names(rankings)
    factors = _factors(dialect, weights, names)
    totals: dict[str, _Total] = {}
    for label, hits, factor in zip(labels(names), rankings, factors, strict=True):
        for rank, hit in enumerate(_in_engine_order(hits, dialect) if factor > 0 else ()):
            one = totals.setdefault(dialect.same(hit), _Total())
            part = dialect.part(rank, factor, len(names))
            one.total = dialect.add(one.total, part)
            # Engines count an id that a list repeats at each of its ranks.
            one.parts[label] = one.parts.get(label, 0.0) + part
            one.hits.append(hit)
    for one in totals.values():
        if dialect.ties == "id":
            one.total = fsum(one.parts.values())
        one.total = dialect.finish(one.total, len(names))
    order = sorted(totals.values(), key=lambda one: (-one.total, *_TIES[dialect.ties](one)))
    kept = [one.hits[0 if dialect.keeps == "first" else -1] for one in order]
    record = StageRecord(
        kind=StageKind.FUSE,
        name="rrf",
        ids=tuple(hit.id for hit in kept),
        scores=tuple(one.total for one in order),
        parts={
            label: {
                hit.id: one.parts[label] for hit, one in zip(kept, order, strict=True) if label in one.parts
            }
            for label in labels(names)
        },
        note=f"as {dialect_named(name)} computes it",
        merged={
            hit.id: first.id
            for first, one in zip(kept, order, strict=True)
            for hit in one.hits
            if hit.id != first.id
        },
    )
    return fused_list(kept, record, k=k)


def _factors(dialect: Dialect, weights: Weights | None, names: Sequence[str]) -> list[float]:
    if not names:
        return []
    if weights is None:
        return [dialect.equal_weight(len(names))] * len(names)
    given = list_weights(weights, names)
    return [weight / sum(given) for weight in given] if dialect.shares_weights else given


def _in_engine_order(hits: Sequence[Hit], dialect: Dialect) -> Sequence[Hit]:
    if not dialect.sorts_lists:
        return hits
    return sorted(hits, key=lambda hit: -math.inf if hit.score is None else hit.score, reverse=True)


_TIES: dict[str, Callable[[_Total], tuple[float | str, ...]]] = {
    "id": lambda one: (one.hits[0].id,),
    "score": lambda one: (-max(hit.score or 0.0 for hit in one.hits),),
    # Python's sort is stable, so equal keys stay in the order they were first seen.
    "seen": lambda one: (),
}


def _three_deviations(scores: Sequence[float], *, freedom: int) -> tuple[float, float]:
    # Plain sums on purpose: the engines add this way, and the last bit is theirs to choose.
    mean = sum(scores) / len(scores)
    deviation = (sum((score - mean) ** 2 for score in scores) / freedom) ** 0.5
    return mean - 3 * deviation, mean + 3 * deviation


def _dbsf_scaled(scores: Sequence[float], low: float, high: float) -> list[float]:
    return [(score - low) / (high - low) for score in scores]


def dbsf_qdrant(scores: Sequence[float]) -> list[float]:
    """Scale by the sample deviation; a single score, or no deviation, gives 0.5."""
    if len(scores) < 2:
        return [0.5] * len(scores)
    low, high = _three_deviations(scores, freedom=len(scores) - 1)
    return [0.5] * len(scores) if high == low else _dbsf_scaled(scores, low, high)


def dbsf_haystack(scores: Sequence[float]) -> list[float]:
    """Scale by the population deviation; equal scores stay as they are."""
    if not scores or min(scores) == max(scores):
        return list(scores)
    return _dbsf_scaled(scores, *_three_deviations(scores, freedom=len(scores)))


def dbsf_llama_index(scores: Sequence[float]) -> list[float]:
    """Scale by the population deviation; without any, scores are 1.0, or 0.0 unless above zero."""
    if not scores:
        return []
    low, high = _three_deviations(scores, freedom=len(scores))
    if high == low:
        return [1.0 if high > 0 else 0.0] * len(scores)
    return _dbsf_scaled(scores, low, high)


@dataclass(frozen=True, slots=True)
class DbsfRule:
    """How an engine scales one list and what it does with a hit of several lists."""

    scale: Callable[[Sequence[float]], list[float]]
    total: Callable[[list[float]], float] = fsum
    shares_weight: bool = False


DBSF_DIALECTS: dict[str, DbsfRule] = {
    "haystack": DbsfRule(dbsf_haystack, total=max),
    "llama-index": DbsfRule(dbsf_llama_index, shares_weight=True),
    "qdrant": DbsfRule(dbsf_qdrant),
}
