"""What the engines' fusions share: weights, keys as the engines make them, and the record of the totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from resift.errors import InputError
from resift.ranking.fusion.lists import Weights, list_weights
from resift.ranking.fusion.totals import TOO_LARGE, fused_list
from resift.types import Fused, Hit, StageKind, StageRecord

Weighing = Literal["as given", "shared", "none"]
"""What an engine does with weights: takes them, divides them by their sum, or has none."""


@dataclass(slots=True)
class EngineTotal:
    """One key on its way: the hit that is kept, what each list added, and all hits that were added up."""

    kept: Hit
    parts: dict[str, float] = field(default_factory=dict)
    hits: list[Hit] = field(default_factory=list)
    total: float = 0.0


def text_key(hit: Hit) -> str:
    """Return the text, which makes documents the same in LangChain; the id where there is none."""
    return f"text:{hit.text}" if hit.text else f"id:{hit.id}"


def node_key(hit: Hit) -> str:
    """Return text and metadata, which LlamaIndex hashes; the id where there is no text."""
    return f"text:{hit.text}{dict(hit.metadata)}" if hit.text else f"id:{hit.id}"


def engine_factors(
    weights: Weights | None, names: Sequence[str], weighing: Weighing, equal: Callable[[int], float]
) -> list[float]:
    """Return one factor per list."""
    if weights is None or not names:
        return [equal(len(names))] * len(names) if names else []
    given = list_weights(weights, names)
    # A plain sum, as the engines add.
    return [weight / sum(given) for weight in given] if weighing == "shared" else given


def engine_fused(
    order: Sequence[EngineTotal], names: Sequence[str], *, method: str, engine: str, k: int | None
) -> Fused:
    """Return the totals, best first, as hits with the record of what each list added."""
    # An engine would pass infinity on; here it is no score.
    if not all(math.isfinite(one.total) for one in order):
        raise InputError(TOO_LARGE)
    record = StageRecord(
        kind=StageKind.FUSE,
        name=method,
        ids=tuple(one.kept.id for one in order),
        scores=tuple(one.total for one in order),
        parts={name: {one.kept.id: one.parts[name] for one in order if name in one.parts} for name in names},
        note=f"as {engine} computes it",
        merged={hit.id: one.kept.id for one in order for hit in one.hits if hit.id != one.kept.id},
    )
    return fused_list([one.kept for one in order], record, k=k)
