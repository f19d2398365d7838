"""What a framework's document says of its place: score, tier, degraded, reason, why."""

from __future__ import annotations

from collections.abc import Iterator

from resift.types import Hit, JsonObject, Ranking


def with_facts(ranking: Ranking) -> Iterator[tuple[Hit, JsonObject]]:
    """Yield each hit with the metadata that every adapter adds to its document.

    `relevance_score` is None where nobody judged the document; `why` tells in words how it got its place.
    """
    reasons = ranking.why_all()
    for hit, score in zip(ranking, ranking.scores(), strict=True):
        yield (
            hit,
            {
                "relevance_score": score,
                "tier": ranking.tier,
                "degraded": ranking.degraded,
                "reason": ranking.reason,
                "why": reasons[hit.id],
            },
        )
