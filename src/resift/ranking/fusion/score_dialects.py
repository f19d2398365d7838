"""How named engines fuse by score, each as one row of data: the same numbers, bit for bit.

An id that a list repeats counts each time, lists of weight 0 keep their hits, and a hit without a score
counts as 0, as the engines do. Sums are plain on purpose: the last bit is the engine's to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Unpack

from resift.errors import InputError
from resift.ranking.fusion.engine_totals import EngineTotal, Weighing, engine_factors, engine_fused, node_key
from resift.ranking.fusion.lists import ListOptions, Rankings, declared_order, labels, list_names
from resift.ranking.fusion.totals import TOO_LARGE
from resift.types import Fused, Hit
from resift.validation import check_choice

Scale = Callable[[Sequence[float]], list[float]]
DbsfDialect = Literal["haystack", "llama-index", "qdrant"]
RelativeScoreDialect = Literal["llama-index"]


def within_range(scale: Scale) -> Scale:
    """Return the scale with one clear error for scores whose squares no float can hold."""

    def scaled(scores: Sequence[float]) -> list[float]:
        try:
            return scale(scores)
        except OverflowError:
            raise InputError(TOO_LARGE) from None

    return scaled


def dbsf_qdrant(scores: Sequence[float]) -> list[float]:
    """Scale by the sample deviation; a single score, or no deviation, gives 0.5."""
    # A sample of one has no deviation: n - 1 would divide by zero.
    if len(scores) < 2:
        return [0.5] * len(scores)
    low, high = _three_deviations(scores, freedom=len(scores) - 1)
    return [0.5] * len(scores) if high == low else _between(scores, low, high)


def dbsf_haystack(scores: Sequence[float]) -> list[float]:
    """Scale by the population deviation; equal scores stay as they are."""
    if not scores or min(scores) == max(scores):
        return list(scores)
    low, high = _three_deviations(scores, freedom=len(scores))
    return list(scores) if high == low else _between(scores, low, high)


def dbsf_llama_index(scores: Sequence[float]) -> list[float]:
    """Scale by the population deviation; without any, scores are 1.0, or 0.0 unless above zero."""
    return _llama_index(scores, *_three_deviations(scores, freedom=len(scores))) if scores else []


def relative_llama_index(scores: Sequence[float]) -> list[float]:
    """Scale from lowest to highest; equal scores are 1.0, or 0.0 unless above zero."""
    return _llama_index(scores, min(scores), max(scores)) if scores else []


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDialect:
    """How an engine scales one list and what it does with a hit that comes more than once."""

    scale: Scale
    weighing: Weighing = "none"
    same: Callable[[Hit], str] = lambda hit: hit.id
    own_identity: str = "id"
    takes_best: bool = False  # the best of a hit's scores instead of their sum


DBSF_DIALECTS: dict[str, ScoreDialect] = {
    "haystack": ScoreDialect(scale=dbsf_haystack, takes_best=True),
    "llama-index": ScoreDialect(
        scale=dbsf_llama_index, weighing="shared", same=node_key, own_identity="text and metadata"
    ),
    "qdrant": ScoreDialect(scale=dbsf_qdrant),
}
RELATIVE_SCORE_DIALECTS: dict[str, ScoreDialect] = {
    "llama-index": ScoreDialect(
        scale=relative_llama_index, weighing="shared", same=node_key, own_identity="text and metadata"
    ),
}


def fuse_scores_as(
    name: str,
    rankings: Rankings,
    dialects: dict[str, ScoreDialect],
    *,
    method: str,
    **options: Unpack[ListOptions],
) -> Fused:
    """Fuse as the named engine does, in the order of lists given or declared."""
    dialect = dialects[check_choice(name, dialects, f"dialect of {method}")]
    weights, identity = options.get("weights"), options.get("identity")
    if weights is not None and dialect.weighing == "none":
        raise InputError(f"{method} has no weights in {name}: leave weights out, or the dialect.")
    if identity not in (None, dialect.own_identity):
        raise InputError(
            f"Hits are the same by {dialect.own_identity} in {name}: leave identity out, or the dialect."
        )
    names = list_names(rankings)
    equal = (lambda lists: 1.0 / lists) if dialect.weighing == "shared" else (lambda lists: 1.0)
    factors = engine_factors(weights, names, dialect.weighing, equal)
    lists = declared_order(
        list(zip(labels(names), rankings, factors, strict=True)), names, options.get("sources")
    )
    totals: dict[str, EngineTotal] = {}
    for label, hits, factor in lists:
        scores = [hit.score or 0.0 for hit in hits]
        for hit, value in zip(hits, within_range(dialect.scale)(scores), strict=True):
            _add(totals.setdefault(dialect.same(hit), EngineTotal(hit)), label, hit, value * factor, dialect)
    # Stable: equal totals stay in the order in which the engine met them.
    order = sorted(totals.values(), key=lambda one: one.total, reverse=True)
    return engine_fused(order, [label for label, *_ in lists], method=method, engine=name, k=options.get("k"))


def _add(one: EngineTotal, label: str, hit: Hit, value: float, dialect: ScoreDialect) -> None:
    # Not 0 plus the value: the best of negative scores would be 0.
    if not one.hits:
        one.total = value
    elif not dialect.takes_best:
        one.total += value
    elif value > one.total:
        one.kept, one.total = hit, value
    before = one.parts.get(label)
    if before is None:
        one.parts[label] = value
    else:
        one.parts[label] = max(before, value) if dialect.takes_best else before + value
    one.hits.append(hit)


def _llama_index(scores: Sequence[float], low: float, high: float) -> list[float]:
    if high == low:
        return [1.0 if high > 0 else 0.0] * len(scores)
    return _between(scores, low, high)


def _three_deviations(scores: Sequence[float], *, freedom: int) -> tuple[float, float]:
    mean = sum(scores) / len(scores)
    deviation = (sum((score - mean) ** 2 for score in scores) / freedom) ** 0.5
    return mean - 3 * deviation, mean + 3 * deviation


def _between(scores: Sequence[float], low: float, high: float) -> list[float]:
    return [(score - low) / (high - low) for score in scores]
