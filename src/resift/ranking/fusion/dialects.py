"""Reciprocal rank fusion and score fusion exactly as named engines compute them, one row of data each.

Engines disagree on the first rank, the constant, weights, identity of hits, ties, and which copy of a hit is
returned. A row here reproduces that engine's numbers bit for bit, for lists in the engine's order. Options
that the engine lacks are rejected.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Literal, Unpack

from resift.errors import InputError, did_you_mean
from resift.ranking.fusion.lists import (
    TOO_LARGE,
    Identity,
    ListOptions,
    Rankings,
    Weights,
    check_weights,
    declared_order,
    key_function,
    list_names,
    top_hits,
    unique_labels,
)
from resift.types import FusedHits, Hit, StageKind, StageRecord
from resift.validation import check_choice, check_number

DialectName = Literal["elasticsearch", "haystack", "langchain", "llama-index", "qdrant", "txtai", "weaviate"]
DbsfDialect = Literal["haystack", "llama-index", "qdrant"]
RelativeScoreDialect = Literal["llama-index"]

Scale = Callable[[Sequence[float]], list[float]]
Weighting = Literal["as given", "normalized", "none"]
"""How an engine uses weights: unchanged, divided by their sum, or not at all."""


def _text_key(hit: Hit) -> str:
    """Return the text, by which LangChain identifies documents; the id if there is no text."""
    return f"text:{hit.text}" if hit.text else f"id:{hit.id}"


def _node_key(hit: Hit) -> str:
    """Return text and metadata, which LlamaIndex hashes; the id if there is no text."""
    return f"text:{hit.text}{dict(hit.metadata)}" if hit.text else f"id:{hit.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How an engine computes RRF. `part` takes (rank from 0, weight, k_param, number of lists)."""

    part: Callable[[int, float, float, int], float]
    k_param: float = 60
    min_k_param: float | None = None  # None: the engine's constant is fixed
    weighting: Weighting = "as given"
    keeps_zero_weights: bool = True
    equal_weight: Callable[[int], float] = lambda lists: 1.0
    add: Callable[[float, float], float] = lambda total, part: total + part
    finish: Callable[[float, int], float] = lambda total, lists: total
    key: Callable[[Hit], str] = lambda hit: hit.id
    identity: str = "id"
    takes_identity: bool = False
    keeps: Literal["first", "last"] = "first"
    sorts_lists: bool = False
    ties: Literal["seen", "id", "score"] = "seen"


def _single(value: float) -> float:
    """Round to single precision, as an engine with 32-bit scores does."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def _qdrant_part(rank: int, weight: float, k_param: float, lists: int) -> float:
    return 1 / ((rank + 1.0) / weight + k_param - 1.0) if weight > 0 else 0.0


DIALECTS: dict[str, Dialect] = {
    "elasticsearch": Dialect(
        part=lambda rank, weight, k_param, _: weight / (k_param + rank + 1), min_k_param=1, ties="id"
    ),
    # Ranks start at 0, so 61 is 60 + 1. The total is then divided by the best possible one.
    "haystack": Dialect(
        part=lambda rank, weight, _, lists: (weight * lists) / (61 + rank),
        equal_weight=lambda lists: 1 / lists,
        weighting="normalized",
        finish=lambda total, lists: total / (lists / 61),
        keeps="last",
    ),
    "langchain": Dialect(
        part=lambda rank, weight, k_param, _: weight / (rank + 1 + k_param),
        min_k_param=0,
        equal_weight=lambda lists: 1 / lists,
        key=_text_key,
        identity="content",
        takes_identity=True,
    ),
    # It sorts each list by score before it counts ranks, and returns the copy that it saw last.
    "llama-index": Dialect(
        part=lambda rank, _weight, _k_param, _lists: 1.0 / (rank + 60.0),
        weighting="none",
        key=_node_key,
        identity="text and metadata",
        keeps="last",
        sorts_lists=True,
    ),
    # The default k is 2, as in its server.
    "qdrant": Dialect(part=_qdrant_part, k_param=2, min_k_param=1),
    "txtai": Dialect(
        part=lambda rank, weight, *_: (1.0 / (rank + 1)) * weight,
        equal_weight=lambda lists: 1 / lists,
        keeps_zero_weights=False,
    ),
    # It adds 32-bit floats: totals can be equal that differ in 64 bits.
    "weaviate": Dialect(
        part=lambda rank, weight, *_: _single(weight / (60 + rank)),
        equal_weight=lambda lists: 1 / lists,
        keeps_zero_weights=False,
        add=lambda total, part: _single(total + part),
        keeps="last",
        ties="score",
    ),
}

_TIE_KEYS: dict[str, Callable[[Hit], tuple[float | str, ...]]] = {
    "id": lambda hit: (hit.id,),
    "score": lambda hit: (-(hit.score or 0.0), hit.id),
    # The sort is stable: equal keys stay in the order in which they were first seen.
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
    *,
    k: int | None = None,
    k_param: float | None = None,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity | None = None,
) -> FusedHits:
    """Compute RRF as the named engine does, for lists in the given or declared order."""
    name = dialect_name(name)
    dialect = DIALECTS[name]
    if k_param is not None:
        if dialect.min_k_param is None:
            raise InputError(f"The constant of RRF is fixed in {name}: omit k_param, or the dialect.")
        if check_number(k_param, "k_param") < dialect.min_k_param:
            raise InputError(f"k_param is {k_param:g}; {name} takes {dialect.min_k_param:g} or more.")
    if dialect.takes_identity and identity is not None:
        key = key_function(identity) or (lambda hit: hit.id)
    else:
        key = dialect.key
    _reject_options(name, "RRF", dialect, weights, None if dialect.takes_identity else identity)
    # Lists of weight 0 count here: engines divide by the number of lists that they got.
    names = list_names(rankings)
    constant = dialect.k_param if k_param is None else k_param
    factors = _engine_weights(weights, names, dialect.weighting, dialect.equal_weight)
    lists = declared_order(list(zip(unique_labels(names), rankings, factors, strict=True)), names, sources)
    totals: dict[str, _EngineTotal] = {}
    for label, hits, factor in lists:
        if not factor and not dialect.keeps_zero_weights:
            continue
        ranked = sorted(hits, key=lambda hit: hit.score or 0.0, reverse=True) if dialect.sorts_lists else hits
        for rank, hit in enumerate(ranked):
            entry = totals.setdefault(key(hit), _EngineTotal(hit))
            part = dialect.part(rank, factor, constant, len(names))
            entry.total = dialect.add(entry.total, part)
            # Engines count an id that a list repeats at each of its ranks.
            entry.parts[label] = entry.parts.get(label, 0.0) + part
            entry.hits.append(hit)
            entry.hit = entry.hits[0 if dialect.keeps == "first" else -1]
    for entry in totals.values():
        # Ties by id must not depend on the order of the lists: exact sums.
        if dialect.ties == "id":
            entry.total = fsum(entry.parts.values())
        entry.total = dialect.finish(entry.total, len(names))
    order = sorted(totals.values(), key=lambda entry: (-entry.total, *_TIE_KEYS[dialect.ties](entry.hit)))
    return _to_fused(order, [label for label, *_ in lists], method="rrf", engine=name, k=k)


# Score fusion. Engines count a repeated id each time, keep the hits of lists with weight 0, and treat an
# unscored hit as 0. Sums are plain on purpose: the last bit must be the engine's.


def dbsf_qdrant(scores: Sequence[float]) -> list[float]:
    """Scale by the sample deviation; a single score, or equal ones, become 0.5."""
    equal = [0.5] * len(scores)
    # n - 1 would divide by zero for a single score.
    return equal if len(scores) < 2 else _scale(scores, *_limits(scores, len(scores) - 1), equal=equal)


def _dbsf_haystack(scores: Sequence[float]) -> list[float]:
    """Scale by the population deviation; equal scores stay unchanged."""
    if not scores or min(scores) == max(scores):
        return list(scores)
    return _scale(scores, *_limits(scores, len(scores)), equal=list(scores))


def _dbsf_llama_index(scores: Sequence[float]) -> list[float]:
    """Scale by the population deviation; equal scores become 1.0 if positive, else 0.0."""
    return _scale(scores, *_limits(scores, len(scores))) if scores else []


def _relative_llama_index(scores: Sequence[float]) -> list[float]:
    """Scale from lowest to highest; equal scores become 1.0 if positive, else 0.0."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDialect:
    """How an engine scales the scores of a list and combines those of one hit."""

    scale: Scale
    weighting: Weighting = "none"
    key: Callable[[Hit], str] = lambda hit: hit.id
    identity: str = "id"
    takes_best: bool = False  # the best of a hit's scores instead of their sum


DBSF_DIALECTS: dict[str, ScoreDialect] = {
    "haystack": ScoreDialect(scale=_dbsf_haystack, takes_best=True),
    "llama-index": ScoreDialect(
        scale=_dbsf_llama_index, weighting="normalized", key=_node_key, identity="text and metadata"
    ),
    "qdrant": ScoreDialect(scale=dbsf_qdrant),
}
RELATIVE_SCORE_DIALECTS: dict[str, ScoreDialect] = {
    "llama-index": ScoreDialect(
        scale=_relative_llama_index, weighting="normalized", key=_node_key, identity="text and metadata"
    )
}


def fuse_scores_as(
    name: str,
    rankings: Rankings,
    dialects: Mapping[str, ScoreDialect],
    *,
    method: str,
    k: int | None = None,
    **options: Unpack[ListOptions],
) -> FusedHits:
    """Fuse scores as the named engine does, for lists in the given or declared order."""
    dialect = dialects[check_choice(name, dialects, f"dialect of {method}")]
    _reject_options(name, method, dialect, options.get("weights"), options.get("identity"))
    names = list_names(rankings)
    equal = (lambda lists: 1.0 / lists) if dialect.weighting == "normalized" else (lambda lists: 1.0)
    factors = _engine_weights(options.get("weights"), names, dialect.weighting, equal)
    lists = declared_order(
        list(zip(unique_labels(names), rankings, factors, strict=True)), names, options.get("sources")
    )
    totals: dict[str, _EngineTotal] = {}
    for label, hits, factor in lists:
        for hit, scaled in zip(hits, dialect.scale([hit.score or 0.0 for hit in hits]), strict=True):
            entry = totals.setdefault(dialect.key(hit), _EngineTotal(hit))
            value = scaled * factor
            # The first value replaces the 0: otherwise the best of negative scores would be 0.
            if not entry.hits:
                entry.total = value
            elif not dialect.takes_best:
                entry.total += value
            elif value > entry.total:
                entry.hit, entry.total = hit, value
            if label not in entry.parts:
                entry.parts[label] = value
            elif dialect.takes_best:
                entry.parts[label] = max(entry.parts[label], value)
            else:
                entry.parts[label] += value
            entry.hits.append(hit)
    # The sort is stable: equal totals stay in the order in which they were first seen.
    order = sorted(totals.values(), key=lambda entry: entry.total, reverse=True)
    return _to_fused(order, [label for label, *_ in lists], method=method, engine=name, k=k)


@dataclass(slots=True)
class _EngineTotal:
    """The total of one key: the hit to return, what each list added, and all hits that were added."""

    hit: Hit
    parts: dict[str, float] = field(default_factory=dict)
    hits: list[Hit] = field(default_factory=list)
    total: float = 0.0


def _reject_options(
    engine: str, method: str, dialect: Dialect | ScoreDialect, weights: Weights | None, identity: Identity | None
) -> None:
    if weights is not None and dialect.weighting == "none":
        raise InputError(f"{method} has no weights in {engine}: omit weights, or the dialect.")
    if identity not in (None, dialect.identity):
        raise InputError(f"Hits are the same by {dialect.identity} in {engine}: omit identity, or the dialect.")


def _engine_weights(
    weights: Weights | None, names: Sequence[str], weighting: Weighting, equal: Callable[[int], float]
) -> list[float]:
    """Return one factor per list."""
    if weights is None or not names:
        return [equal(len(names))] * len(names) if names else []
    factors = check_weights(weights, names)
    # A plain sum, as in the engines.
    return [factor / sum(factors) for factor in factors] if weighting == "normalized" else factors


def _to_fused(
    order: Sequence[_EngineTotal], labels: Sequence[str], *, method: str, engine: str, k: int | None
) -> FusedHits:
    """Return the totals, best first, as hits with the record of what each list added."""
    # An engine would return infinity, which is not a valid score here.
    if not all(math.isfinite(entry.total) for entry in order):
        raise InputError(TOO_LARGE)
    record = StageRecord(
        kind=StageKind.FUSE,
        name=method,
        ids=tuple(entry.hit.id for entry in order),
        scores=tuple(entry.total for entry in order),
        parts={
            label: {entry.hit.id: entry.parts[label] for entry in order if label in entry.parts} for label in labels
        },
        note=f"as {engine} computes it",
        merged={hit.id: entry.hit.id for entry in order for hit in entry.hits if hit.id != entry.hit.id},
    )
    return top_hits([entry.hit for entry in order], record, k=k)
