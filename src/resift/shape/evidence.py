"""What a hit's ledger says: its places in the stores' lists, its fused score, its rerank score."""

from __future__ import annotations

from typing import NamedTuple

from resift.types import Hit, Step

RETRIEVE, RERANK = "retrieve", "rerank"
_NO_FUSION = frozenset({RETRIEVE, RERANK, "gate", "cut", "input"})


class Evidence(NamedTuple):
    """The steps of one hit that tell its relevance: one per store's list, the fused total, the reranker's."""

    lists: dict[str, Step]
    fused: Step | None
    rerank: Step | None


def evidence(hit: Hit) -> Evidence:
    """Read a ledger: best place per store, the last total before reranking, the last rerank score."""
    lists: dict[str, Step] = {}
    fused: Step | None = None
    rerank: Step | None = None
    for step in hit.ledger.steps:
        stage = step.stage
        if stage == RETRIEVE:
            if step.source not in lists or step.rank < lists[step.source].rank:
                lists[step.source] = step
        elif stage == RERANK:
            if step.score is not None:
                rerank = step
        elif rerank is None and not step.source and step.score is not None and stage not in _NO_FUSION:
            fused = step
    return Evidence(lists, fused, rerank)


def rerank_step(hit: Hit) -> Step | None:
    """Return the last step in which a scorer scored the hit."""
    return next((s for s in reversed(hit.ledger.steps) if s.stage == RERANK and s.score is not None), None)
