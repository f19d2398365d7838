"""How named engines compute reciprocal rank fusion, each as one row of data (F7).

They disagree on the first rank, the constant, weights, what makes two hits the same, whose copy is
kept, and ties. A row here gives that engine's numbers bit for bit, on lists in that engine's order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal

from resift.errors import InputError, did_you_mean
from resift.fusion.lists import Rankings, Weights, checked_k, content_key, list_names, list_weights
from resift.types import Hit, Ledger, Step, draft

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


def fuse_as(
    name: str, rankings: Rankings, *, k: int | None = None, weights: Weights | None = None
) -> list[Hit]:
    """Fuse as the named engine does, in the order of lists given."""
    checked_k(k)
    dialect = DIALECTS[dialect_named(name)]
    names = list_names(rankings)
    factors = _factors(dialect, weights, names)
    parts: dict[str, list[tuple[str, int, float, Hit]]] = {}
    for number, (hits, factor) in enumerate(zip(rankings, factors, strict=True)):
        label = names[number] or f"list {number + 1}"
        for rank, hit in enumerate(_in_engine_order(hits, dialect) if factor > 0 else ()):
            part = dialect.part(rank, factor, len(names))
            parts.setdefault(dialect.same(hit), []).append((label, rank, part, hit))
    fused = [_fused(dialect, added, len(names)) for added in parts.values()]
    fused.sort(key=_TIES[dialect.ties])
    return [_placed(hit, rank) for rank, hit in enumerate(fused[:k], start=1)]


def _factors(dialect: Dialect, weights: Weights | None, names: Sequence[str]) -> list[float]:
    if not names:
        return []
    if weights is None:
        return [dialect.equal_weight(len(names))] * len(names)
    given = list_weights(weights, names)
    return [weight / sum(given) for weight in given] if dialect.shares_weights else given


def _in_engine_order(hits: Sequence[Hit], dialect: Dialect) -> Sequence[Hit]:
    return sorted(hits, key=lambda hit: hit.score, reverse=True) if dialect.sorts_lists else hits


def _fused(dialect: Dialect, added: Sequence[tuple[str, int, float, Hit]], lists: int) -> Hit:
    total = 0.0
    steps: list[Step] = []
    for label, rank, part, hit in added:
        total = dialect.add(total, part)
        steps.extend(hit.ledger or (Step("retrieve", label, rank + 1, hit.score),))
    if dialect.ties == "id":
        total = fsum(part for _, _, part, _ in added)
    kept = added[0 if dialect.keeps == "first" else -1][3]
    ledger = Ledger([*steps, *(Step("rrf", label, rank + 1, part) for label, rank, part, _ in added)])
    return draft(kept.id, kept.text, dialect.finish(total, lists), kept.source, kept.metadata, ledger)


def _placed(hit: Hit, rank: int) -> Hit:
    return hit.step("rrf", "", rank=rank, score=hit.score)


def _best_list_score(hit: Hit) -> float:
    return max(step.score or 0.0 for step in hit.ledger if step.stage != "rrf")


_TIES: dict[str, Callable[[Hit], tuple[float, float | str]]] = {
    "id": lambda hit: (-hit.score, hit.id),
    "score": lambda hit: (-hit.score, -_best_list_score(hit)),
    # Python's sort is stable, so equal keys stay in the order they were first seen.
    "seen": lambda hit: (-hit.score, ""),
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
