"""One place where scores become an order: sorting, what was not scored, ledger, cut, degradation."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence

from resift.candidates import MissingText
from resift.deadline import Deadline
from resift.errors import InvalidHitError, ResiftError
from resift.events import Reranked, Sink, emit
from resift.protocols import Scorer
from resift.types import Hit, Ranking, Scores, cut_to

log = logging.getLogger("resift.rerankers")


async def rescore(
    scorer: Scorer,
    query: str,
    hits: Sequence[Hit],
    *,
    k: int,
    deadline: Deadline | None = None,
    missing_text: MissingText = "last",
    stage: str = "rerank",
    sink: Sink | None = None,
) -> Ranking:
    """Order hits by a scorer's judgement and keep the best k.

    Never raises for a scorer that fails: the order stays, and the ranking says `degraded` and why.
    Unscored hits stand last in their old order; nothing is lost (`cut` holds what k left out).
    """
    cut_to((), k)  # a wrong k is refused before any work
    started = time.perf_counter()
    texts = [_with_text(hit, missing_text) for hit in hits]
    asked = [position for position, hit in enumerate(texts) if hit is not None]
    scores = await _ask(
        scorer, query, [hit for hit in texts if hit is not None], deadline or Deadline.never()
    )
    values = dict(zip(asked, map(_usable, scores.values), strict=True))
    ordered, unscored = _ordered(hits, values, scores, stage=stage)
    kept, cut = cut_to(ordered, k)
    elapsed_ms = (time.perf_counter() - started) * 1000
    failed = sum(value is None for value in values.values())
    ranking = Ranking(
        kept,
        degraded=scores.degraded or (failed > 0 and not scores.settled),
        reason=scores.reason or (f"{failed} of {len(asked)} hits were not scored" if failed else None),
        tier=scores.provider,
        unscored=tuple(unscored),
        timings={stage: elapsed_ms},
        cut=cut,
    )
    emit(
        sink,
        Reranked(
            provider=scores.provider,
            candidates=len(hits),
            unscored=len(unscored),
            kept=len(kept),
            latency_ms=elapsed_ms,
            degraded=ranking.degraded,
            reason=ranking.reason,
        ),
    )
    return ranking


def provider_of(scorer: Scorer) -> str:
    """Return the scorer's `name`, or its class name where it has none."""
    return str(getattr(scorer, "name", type(scorer).__name__))


async def _ask(scorer: Scorer, query: str, hits: list[Hit], deadline: Deadline) -> Scores:
    if not hits:
        return Scores((), provider_of(scorer))
    try:
        scores = await scorer.score(query, hits, deadline=deadline)
        if len(scores.values) != len(hits):
            raise ResiftError(f"{len(scores.values)} scores for {len(hits)} hits")
    except Exception as exc:
        # Exception text may quote a document; its type cannot.
        told = str(exc) if isinstance(exc, ResiftError) else type(exc).__name__
        reason = f"{provider_of(scorer)} failed: {told}"
        log.warning("reranking degraded: %s", reason)
        return Scores([None] * len(hits), provider_of(scorer), degraded=True, reason=reason)
    return scores


def _ordered(
    hits: Sequence[Hit], values: dict[int, float | None], scores: Scores, *, stage: str
) -> tuple[list[Hit], list[str]]:
    scored = [(-value, hits[at].id, at) for at, value in values.items() if value is not None]
    order = [at for _, _, at in sorted(scored)]
    rest = [at for at in range(len(hits)) if values.get(at) is None]
    ranked: list[Hit] = []
    for rank, at in enumerate([*order, *rest], start=1):
        value = values.get(at)
        note = scores.note if value is not None else _why_unscored(at in values, scores)
        hit = hits[at].step(stage, scores.provider, rank=rank, score=value, note=note)
        ranked.append(hit.with_metadata(rerank_provider=scores.provider) if value is not None else hit)
    return ranked, [hits[at].id for at in rest]


def _why_unscored(asked: bool, scores: Scores) -> str:
    if not asked:
        return "no text to score"
    return scores.reason or "not scored"


def _usable(value: float | None) -> float | None:
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _with_text(hit: Hit, policy: MissingText) -> Hit | None:
    if hit.text.strip() or policy == "empty":
        return hit
    if policy == "id":
        return Hit(hit.id, hit.id, hit.score, hit.source, hit.metadata, hit.ledger)
    if policy == "raise":
        raise InvalidHitError(f"Hit {hit.id!r} has no text to score.")
    return None
