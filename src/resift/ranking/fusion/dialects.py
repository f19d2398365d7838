"""Reciprocal rank fusion and score fusion exactly as specific engines compute them, described as data.

Engines differ in the first rank, the constant, weights, identity of hits, ties, and which copy of a hit they
return. A dialect reproduces the numbers of its engine bit for bit, for lists in the engine's order. Options
that the engine does not have are rejected.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Literal

from resift.errors import InputError, did_you_mean
from resift.ranking.fusion.lists import (
    TOO_LARGE,
    Identity,
    Rankings,
    Weights,
    check_weights,
    declared_order,
    key_function,
    list_names,
    unique_labels,
)
from resift.types import FusedHits, Hit, StageKind, StageRecord, cut_record, with_scores
from resift.validation import check_choice, check_k, check_number

DialectName = Literal["elasticsearch", "haystack", "langchain", "llama-index", "qdrant", "txtai", "weaviate"]
DbsfDialect = Literal["haystack", "llama-index", "qdrant"]
RelativeScoreDialect = Literal["llama-index"]

Scale = Callable[[Sequence[float]], list[float]]
Weighting = Literal["as given", "normalized", "none"]
"""How an engine uses weights: unchanged, divided by their sum, or not at all."""


def _text_key(hit: Hit) -> str:
    """Return the text, which identifies documents in LangChain, or the id if there is no text."""
    return f"text:{hit.text}" if hit.text else f"id:{hit.id}"


def _node_key(hit: Hit) -> str:
    """Return text and metadata, which LlamaIndex hashes, or the id if there is no text."""
    return f"text:{hit.text}{dict(hit.metadata)}" if hit.text else f"id:{hit.id}"


Values = Callable[[Sequence[Hit], float, float, int], list[float]]
"""Computes the values of a list's hits from the hits, the weight, the constant and the number of lists."""


def _by_rank(part: Callable[[int, float, float, int], float]) -> Values:
    """Return the values function of an engine that uses ranks, counted from 0."""
    return lambda hits, weight, k_param, lists: [part(rank, weight, k_param, lists) for rank in range(len(hits))]


def _by_score(scale: Scale) -> Values:
    """Return the values function of an engine that scales scores; the score of an unscored hit is 0."""
    return lambda hits, weight, *_: [value * weight for value in scale([hit.score or 0.0 for hit in hits])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The fusion algorithm of an engine."""

    values: Values
    k_param: float = 60
    min_k_param: float | None = None  # None if the engine's constant is fixed
    weighting: Weighting = "as given"
    keeps_zero_weights: bool = True
    equal_weight: Callable[[int], float] = lambda lists: 1.0
    add: Callable[[float, float], float] = lambda total, part: total + part
    takes_best: bool = False  # use the best of a hit's values instead of their sum
    finish: Callable[[float, int], float] = lambda total, lists: total
    key: Callable[[Hit], str] = lambda hit: hit.id
    identity: str = "id"
    takes_identity: bool = False
    keeps: Literal["first", "last"] = "first"
    sorts_lists: bool = False
    ties: Literal["seen", "id", "score"] = "seen"


def _single(value: float) -> float:
    """Round to single precision, for engines with 32-bit scores."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def _qdrant_part(rank: int, weight: float, k_param: float, lists: int) -> float:
    return 1 / ((rank + 1.0) / weight + k_param - 1.0) if weight > 0 else 0.0


DIALECTS: dict[str, Dialect] = {
    "elasticsearch": Dialect(
        values=_by_rank(lambda rank, weight, k_param, _: weight / (k_param + rank + 1)), min_k_param=1, ties="id"
    ),
    # Ranks start at 0, so 61 is 60 + 1. The total is divided by the highest possible total.
    "haystack": Dialect(
        values=_by_rank(lambda rank, weight, _, lists: (weight * lists) / (61 + rank)),
        equal_weight=lambda lists: 1 / lists,
        weighting="normalized",
        finish=lambda total, lists: total / (lists / 61),
        keeps="last",
    ),
    "langchain": Dialect(
        values=_by_rank(lambda rank, weight, k_param, _: weight / (rank + 1 + k_param)),
        min_k_param=0,
        equal_weight=lambda lists: 1 / lists,
        key=_text_key,
        identity="content",
        takes_identity=True,
    ),
    # It sorts each list by score before it counts ranks, and returns the last copy of a hit.
    "llama-index": Dialect(
        values=_by_rank(lambda rank, *_: 1.0 / (rank + 60.0)),
        weighting="none",
        key=_node_key,
        identity="text and metadata",
        keeps="last",
        sorts_lists=True,
    ),
    # The default k is 2, as in its server.
    "qdrant": Dialect(values=_by_rank(_qdrant_part), k_param=2, min_k_param=1),
    "txtai": Dialect(
        values=_by_rank(lambda rank, weight, *_: (1.0 / (rank + 1)) * weight),
        equal_weight=lambda lists: 1 / lists,
        keeps_zero_weights=False,
    ),
    # It adds 32-bit floats, so totals that differ in 64 bits can be equal.
    "weaviate": Dialect(
        values=_by_rank(lambda rank, weight, *_: _single(weight / (60 + rank))),
        equal_weight=lambda lists: 1 / lists,
        keeps_zero_weights=False,
        add=lambda total, part: _single(total + part),
        keeps="last",
        ties="score",
    ),
}
"""Dialects of RRF."""

_TIE_KEYS: dict[str, Callable[[Hit], tuple[float | str, ...]]] = {
    "id": lambda hit: (hit.id,),
    "score": lambda hit: (-(hit.score or 0.0), hit.id),
    # The sort is stable: hits with equal keys keep the order in which they were first seen.
    "seen": lambda hit: (),
}


def dialect_name(name: str) -> str:
    """Return the canonical name of a dialect; case, spaces and dashes do not matter."""
    known = {dialect.replace("-", ""): dialect for dialect in DIALECTS}
    compact = "".join(char for char in str(name).lower() if char.isalnum())
    if compact not in known:
        raise InputError(f"Unknown dialect {name!r}. {did_you_mean(str(name).lower(), DIALECTS)}")
    return known[compact]


def fuse_as(
    name: str,
    rankings: Rankings,
    dialects: Mapping[str, Dialect] = DIALECTS,
    *,
    method: str = "rrf",
    k: int | None = None,
    k_param: float | None = None,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity | None = None,
) -> FusedHits:
    """Fuse lists, in the order given or declared, exactly as this engine does."""
    name = dialect_name(name) if dialects is DIALECTS else check_choice(name, dialects, f"dialect of {method}")
    dialect = dialects[name]
    constant = dialect.k_param if k_param is None else check_number(k_param, "k_param")
    if k_param is not None and dialect.min_k_param is None:
        raise InputError(f"The constant of RRF is fixed in {name}: omit k_param, or the dialect.")
    if constant < (dialect.min_k_param or 0):
        raise InputError(f"k_param is {constant:g}; {name} takes {dialect.min_k_param:g} or more.")
    if weights is not None and dialect.weighting == "none":
        subject = "RRF" if method == "rrf" else method
        raise InputError(f"{subject} has no weights in {name}: omit weights, or the dialect.")
    key = dialect.key
    if dialect.takes_identity and identity is not None:
        key = key_function(identity) or (lambda hit: hit.id)
    elif identity not in (None, dialect.identity):
        raise InputError(f"{name} identifies hits by {dialect.identity}: omit identity, or the dialect.")
    # Lists with weight 0 are counted, because engines divide by the number of all lists.
    names = list_names(rankings)
    count = len(names)
    factors = [dialect.equal_weight(count)] * count if weights is None and names else check_weights(weights, names)
    if dialect.weighting == "normalized" and weights is not None:
        factors = [factor / sum(factors) for factor in factors]  # a plain sum, as in the engines
    lists = declared_order(list(zip(unique_labels(names), rankings, factors, strict=True)), names, sources)
    totals: dict[str, _EngineTotal] = {}
    for label, hits, factor in lists:
        if not factor and not dialect.keeps_zero_weights:
            continue
        ranked = sorted(hits, key=lambda hit: hit.score or 0.0, reverse=True) if dialect.sorts_lists else hits
        # Engines count a repeated id each time. Plain sums reproduce the engine's result to the last bit.
        for hit, value in zip(ranked, dialect.values(ranked, factor, constant, count), strict=True):
            entry = totals.setdefault(key(hit), _EngineTotal(hit))
            if dialect.takes_best:
                if not entry.hits or value > entry.total:
                    entry.hit, entry.total = hit, value
                entry.parts[label] = max(entry.parts.get(label, value), value)
            else:
                entry.total = dialect.add(entry.total, value)
                entry.parts[label] = entry.parts.get(label, 0.0) + value
                entry.hit = entry.hit if dialect.keeps == "first" else hit
            entry.hits.append(hit)
    for entry in totals.values():
        # Sums must be exact if ties are sorted by id, so that they do not depend on the order of the lists.
        if dialect.ties == "id":
            entry.total = fsum(entry.parts.values())
        entry.total = dialect.finish(entry.total, count)
        if not math.isfinite(entry.total):  # an engine would return it, but in Resift it is not a valid score
            raise InputError(TOO_LARGE)
    order = sorted(totals.values(), key=lambda entry: (-entry.total, *_TIE_KEYS[dialect.ties](entry.hit)))
    record = StageRecord(
        kind=StageKind.FUSE,
        name=method,
        ids=tuple(entry.hit.id for entry in order),
        scores=tuple(entry.total for entry in order),
        parts={
            label: {entry.hit.id: entry.parts[label] for entry in order if label in entry.parts} for label, *_ in lists
        },
        note=f"as {name} computes it",
        merged={hit.id: entry.hit.id for entry in order for hit in entry.hits if hit.id != entry.hit.id},
    )
    limit = len(order) if k is None else check_k(k)
    hits = with_scores([entry.hit for entry in order[:limit]], record.scores[:limit])
    return FusedHits(hits, record, *cut_record(record.ids, limit))


@dataclass(slots=True)
class _EngineTotal:
    """The total of one key: the hit to return, the value from each list, and all hits with this key."""

    hit: Hit
    parts: dict[str, float] = field(default_factory=dict)
    hits: list[Hit] = field(default_factory=list)
    total: float = 0.0


def dbsf_qdrant(scores: Sequence[float]) -> list[float]:
    """Scale by the sample standard deviation; a single score or equal scores become 0.5."""
    equal = [0.5] * len(scores)
    # For a single score, the divisor n - 1 would be zero.
    return equal if len(scores) < 2 else _scale(scores, *_limits(scores, len(scores) - 1), equal=equal)


def _dbsf_haystack(scores: Sequence[float]) -> list[float]:
    """Scale by the population standard deviation; equal scores are unchanged."""
    if not scores or min(scores) == max(scores):
        return list(scores)
    return _scale(scores, *_limits(scores, len(scores)), equal=list(scores))


def _dbsf_llama_index(scores: Sequence[float]) -> list[float]:
    """Scale by the population standard deviation; equal scores become 1.0 if positive, else 0.0."""
    return _scale(scores, *_limits(scores, len(scores))) if scores else []


def _relative_llama_index(scores: Sequence[float]) -> list[float]:
    """Scale by the lowest and the highest score; equal scores become 1.0 if positive, else 0.0."""
    return _scale(scores, min(scores), max(scores)) if scores else []


def _scale(scores: Sequence[float], low: float, high: float, *, equal: list[float] | None = None) -> list[float]:
    if high == low:
        return equal or [1.0 if high > 0 else 0.0] * len(scores)
    return [(score - low) / (high - low) for score in scores]


def _limits(scores: Sequence[float], divisor: int) -> tuple[float, float]:
    """Return the mean ± 3 standard deviations."""
    mean = sum(scores) / len(scores)
    try:
        deviation = (sum((score - mean) ** 2 for score in scores) / divisor) ** 0.5
    except OverflowError:
        raise InputError(TOO_LARGE) from None
    return mean - 3 * deviation, mean + 3 * deviation


def _llama_index_scores(scale: Scale) -> Dialect:
    return Dialect(
        values=_by_score(scale),
        weighting="normalized",
        equal_weight=lambda lists: 1.0 / lists,
        key=_node_key,
        identity="text and metadata",
    )


DBSF_DIALECTS: dict[str, Dialect] = {
    "haystack": Dialect(values=_by_score(_dbsf_haystack), weighting="none", takes_best=True),
    "llama-index": _llama_index_scores(_dbsf_llama_index),
    "qdrant": Dialect(values=_by_score(dbsf_qdrant), weighting="none"),
}
RELATIVE_SCORE_DIALECTS: dict[str, Dialect] = {"llama-index": _llama_index_scores(_relative_llama_index)}
