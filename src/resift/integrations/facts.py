"""What a framework's document says of its place: score, tier, degraded, reason, why."""

from __future__ import annotations

from typing import Any

from resift.types import Hit, Ranking


def facts_of(ranking: Ranking, hit: Hit) -> dict[str, Any]:
    """Return the metadata that every adapter adds to a document.

    `relevance_score` is None where nobody judged the document; `why` tells in words how it got its place.
    """
    return {
        "relevance_score": None if hit.id in ranking.unscored else hit.score,
        "tier": ranking.tier,
        "degraded": ranking.degraded,
        "reason": ranking.reason,
        "why": ranking.why(hit.id),
    }
