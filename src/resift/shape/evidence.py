"""What a hit's ledger says: its places in the stores' lists, its fused score, its rerank score."""

from __future__ import annotations

from typing import NamedTuple

from resift.types import Hit, Step

RETRIEVE, RERANK = "retrieve", "rerank"
_NOBODY: frozenset[str] = frozenset()
_NO_FUSION = frozenset({RETRIEVE, RERANK, "gate", "cut", "input"})


class Evidence(NamedTuple):
    """What tells a hit's relevance: a step per store's list, the fused total, the reranker's, who judged."""

    lists: dict[str, Step]
    fused: Step | None
    rerank: Step | None
    judges: frozenset[str]


def evidence(hit: Hit) -> Evidence:
    """Read a ledger: best place per store, the last total before reranking, the last rerank score."""
    lists: dict[str, Step] = {}
    fused: Step | None = None
    rerank: Step | None = None
    judges = _NOBODY
    for step in hit.ledger.steps:
        stage = step[0]
        if stage == RETRIEVE:
            source = step[1]
            if source not in lists or step[2] < lists[source][2]:
                lists[source] = step
        elif step[3] is None:
            continue
        elif stage == RERANK:
            judges = judges | {step[1]}
            rerank = step
        elif rerank is None and not step[1] and stage not in _NO_FUSION:
            fused = step
    return Evidence(lists, fused, rerank, judges)


def rerank_step(hit: Hit) -> Step | None:
    """Return the last step in which a scorer scored the hit."""
    return next((s for s in reversed(hit.ledger.steps) if s.stage == RERANK and s.score is not None), None)
