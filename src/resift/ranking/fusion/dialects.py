"""How named engines compute reciprocal rank fusion, each as one row of data.

They disagree on the first rank, the constant, weights, what makes two hits the same, whose copy is
kept, and ties. A row here gives that engine's numbers bit for bit, on lists in that engine's order.
Options that the engine has not are refused. `score_dialects` has the engines' fusions by score.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal

from resift.errors import InputError, did_you_mean
from resift.ranking.fusion.engine_totals import (
    EngineTotal,
    Weighing,
    engine_factors,
    engine_fused,
    node_key,
    text_key,
)
from resift.ranking.fusion.lists import (
    Identity,
    Rankings,
    Weights,
    declared_order,
    key_function,
    labels,
    list_names,
)
from resift.types import Fused, Hit
from resift.validation import check_number

DialectName = Literal["elasticsearch", "haystack", "langchain", "llama-index", "qdrant", "txtai", "weaviate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One engine's rule. `part` takes (rank from 0, weight, k_param, number of lists)."""

    part: Callable[[int, float, float, int], float]
    k_param: float = 60
    least_k_param: float | None = None  # None: the engine's constant cannot be changed
    weighing: Weighing = "as given"
    keeps_zero_weights: bool = True
    equal_weight: Callable[[int], float] = lambda lists: 1.0
    add: Callable[[float, float], float] = lambda total, part: total + part
    finish: Callable[[float, int], float] = lambda total, lists: total
    same: Callable[[Hit], str] = lambda hit: hit.id
    own_identity: str = "id"
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
        part=lambda rank, weight, k_param, _: weight / (k_param + rank + 1), least_k_param=1, ties="id"
    ),
    # Its ranks begin at 0 and 61 stands for 60 + 1; the total is then a share of the best possible one.
    "haystack": Dialect(
        part=lambda rank, weight, _, lists: (weight * lists) / (61 + rank),
        equal_weight=lambda lists: 1 / lists,
        weighing="shared",
        finish=lambda total, lists: total / (lists / 61),
        keeps="last",
    ),
    "langchain": Dialect(
        part=lambda rank, weight, k_param, _: weight / (rank + 1 + k_param),
        least_k_param=0,
        equal_weight=lambda lists: 1 / lists,
        same=text_key,
        own_identity="content",
        takes_identity=True,
    ),
    # It sorts each list by score before it counts ranks, and keeps the copy that it saw last.
    "llama-index": Dialect(
        part=lambda rank, _weight, _k_param, _lists: 1.0 / (rank + 60.0),
        weighing="none",
        same=node_key,
        own_identity="text and metadata",
        keeps="last",
        sorts_lists=True,
    ),
    # k is 2 unless given, as in its server.
    "qdrant": Dialect(part=_qdrant_part, k_param=2, least_k_param=1),
    "txtai": Dialect(
        part=lambda rank, weight, *_: (1.0 / (rank + 1)) * weight,
        equal_weight=lambda lists: 1 / lists,
        keeps_zero_weights=False,
    ),
    # It adds in 32-bit floats, where totals can tie that differ in 64 bits.
    "weaviate": Dialect(
        part=lambda rank, weight, *_: _single(weight / (60 + rank)),
        equal_weight=lambda lists: 1 / lists,
        keeps_zero_weights=False,
        add=lambda total, part: _single(total + part),
        keeps="last",
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


def check_options(
    name: str, *, k_param: float | None, weights: Weights | None, identity: Identity | None
) -> None:
    """Raise InputError for an option that this engine's RRF has not."""
    dialect = DIALECTS[name]
    if k_param is not None:
        if dialect.least_k_param is None:
            raise InputError(f"The constant of RRF is fixed in {name}: leave k_param out, or the dialect.")
        if check_number(k_param, "k_param") < dialect.least_k_param:
            raise InputError(f"k_param is {k_param:g}; {name} takes {dialect.least_k_param:g} or more.")
    if weights is not None and dialect.weighing == "none":
        raise InputError(f"RRF has no weights in {name}: leave weights out, or the dialect.")
    if identity not in (None, dialect.own_identity) and not dialect.takes_identity:
        raise InputError(
            f"Hits are the same by {dialect.own_identity} in {name}: leave identity out, or the dialect."
        )


def fuse_as(
    name: str,
    rankings: Rankings,
    *,
    k: int | None = None,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity | None = None,
    k_param: float | None = None,
) -> Fused:
    """Fuse as the named engine does, in the order of lists given or declared."""
    name = dialect_named(name)
    check_options(name, k_param=k_param, weights=weights, identity=identity)
    dialect = DIALECTS[name]
    # Lists of weight 0 stay counted: an engine divides by the number of lists that it was given.
    names = list_names(rankings)
    constant = dialect.k_param if k_param is None else k_param
    same = dialect.same if identity is None else key_function(identity) or (lambda hit: hit.id)
    factors = engine_factors(weights, names, dialect.weighing, dialect.equal_weight)
    lists = declared_order(list(zip(labels(names), rankings, factors, strict=True)), names, sources)
    totals: dict[str, EngineTotal] = {}
    for label, hits, factor in lists:
        if not factor and not dialect.keeps_zero_weights:
            continue
        for rank, hit in enumerate(_in_engine_order(hits, dialect)):
            one = totals.setdefault(same(hit), EngineTotal(hit))
            part = dialect.part(rank, factor, constant, len(names))
            one.total = dialect.add(one.total, part)
            # Engines count an id that a list repeats at each of its ranks.
            one.parts[label] = one.parts.get(label, 0.0) + part
            one.hits.append(hit)
            one.kept = one.hits[0 if dialect.keeps == "first" else -1]
    for one in totals.values():
        # Ties by id must not depend on the order of the lists: exact sums.
        if dialect.ties == "id":
            one.total = fsum(one.parts.values())
        one.total = dialect.finish(one.total, len(names))
    order = sorted(totals.values(), key=lambda one: (-one.total, *_TIES[dialect.ties](one.kept)))
    return engine_fused(order, [label for label, *_ in lists], method="rrf", engine=name, k=k)


def _in_engine_order(hits: Sequence[Hit], dialect: Dialect) -> Sequence[Hit]:
    return sorted(hits, key=lambda hit: hit.score or 0.0, reverse=True) if dialect.sorts_lists else hits


_TIES: dict[str, Callable[[Hit], tuple[float | str, ...]]] = {
    "id": lambda kept: (kept.id,),
    "score": lambda kept: (-(kept.score or 0.0), kept.id),
    # Python's sort is stable, so equal keys stay in the order they were first seen.
    "seen": lambda kept: (),
}
