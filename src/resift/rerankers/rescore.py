"""Turn the scores of a scorer into an order, with its record, unscored hits and failures."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from resift.deadline import Deadline
from resift.errors import InputError, InvalidHitError, ResiftError, UnsupportedLanguageError, redact
from resift.events import Reranked, Sink, ambient_sink, emit, is_observed
from resift.external.candidates import MissingText
from resift.external.records import read_text
from resift.protocols import Scorer, describe_scorer, display_name
from resift.ranking.fusion import rrf
from resift.types import (
    FusedHits,
    Hit,
    Ranking,
    ScorerInfo,
    Scores,
    StageKind,
    StageRecord,
    Trace,
    cut_record,
    get_trace,
    with_scores,
)
from resift.validation import check_k, check_query

log = logging.getLogger("resift.rerankers")


@dataclass(frozen=True, slots=True)
class RerankResult:
    """Hits in the order of the scorer, with its record; `unscored` are the ids without a score."""

    hits: list[Hit]
    record: StageRecord
    provider: str
    unscored: tuple[str, ...]
    degraded: bool
    reason: str | None
    latency_ms: float


async def rescore(
    scorer: Scorer,
    query: str,
    hits: Sequence[Hit],
    *,
    k: int,
    trace: Trace | None = None,
    deadline: Deadline | None = None,
    missing_text: MissingText = "last",
    text_keys: Sequence[str] | None = None,
    stage: str = "rerank",
    sink: Sink | None = None,
) -> Ranking:
    """Order hits by a scorer's scores and keep the best k.

    If the scorer fails, the order and the scores stay, and the ranking is `degraded` with the reason.
    Unscored hits come last in their old order, without a score; `cut` has the hits after k. `trace` is the
    trace so far; a ranking has its own.
    """
    check_k(k)
    result = await rerank_hits(
        scorer,
        query,
        hits,
        k=k,
        deadline=deadline,
        missing_text=missing_text,
        text_keys=text_keys,
        stage=stage,
        sink=sink,
    )
    record = result.record
    return Ranking(
        tuple(result.hits[:k]),
        degraded=result.degraded,
        reason=result.reason,
        tier=result.provider,
        unscored=result.unscored,
        timings={stage: result.latency_ms},
        cut=tuple(result.hits[k:]),
        trace=(get_trace(hits) if trace is None else trace).append(record, *cut_record(record.ids, k)),
        query=query,
        input_ids=tuple([hit.id for hit in hits]),
    )


async def rerank_hits(
    scorer: Scorer,
    query: str,
    hits: Sequence[Hit],
    rest: Sequence[Hit] = (),
    *,
    k: int | None = None,
    deadline: Deadline | None = None,
    missing_text: MissingText = "last",
    text_keys: Sequence[str] | None = None,
    stage: str = "rerank",
    sink: Sink | None = None,
) -> RerankResult:
    """Order hits by a scorer's scores, with `rest`, which is not scored, after them.

    `k` is how many hits the caller keeps, for the event.
    """
    started = time.perf_counter()
    # A hit without text is not scored: a model would score an empty one like any other.
    texts = [
        hit if (text := hit.text) and not text.isspace() else _with_text(hit, missing_text, text_keys)
        for hit in hits
    ]
    scorable = [i for i, hit in enumerate(texts) if hit is not None]
    with ambient_sink(sink):
        scores = await _score(
            scorer, query, [hit for hit in texts if hit is not None], deadline or Deadline.never()
        )
    values: list[float | None] = [None] * len(hits)
    for i, value in zip(scorable, scores.values, strict=True):
        # The scorer of another package may return NaN, which has no place in any order.
        if value is not None and math.isfinite(number := float(value)):
            values[i] = number
    info = scores.scorer or describe_scorer(scorer)
    without_text = {i for i, hit in enumerate(texts) if hit is None}
    ordered, record = order_by_scores(
        hits, values, scores, info, without_text=without_text, rest=rest, stage=stage
    )
    scored = sum(value is not None for value in values)
    unscored = record.ids[scored : len(hits)]
    failed = sum(values[i] is None for i in scorable)
    degraded, reason = scores.degraded or (failed > 0 and not scores.settled), scores.reason
    if hits and not scorable:
        degraded, reason = True, reason or f"{scores.provider} scored nothing: no hit has text"
    elif failed:
        reason = reason or f"{failed} of {len(scorable)} hits were not scored"
    latency_ms = (time.perf_counter() - started) * 1000
    if is_observed(sink):
        event = Reranked(
            provider=scores.provider,
            candidates=len(hits),
            unscored=len(unscored),
            kept=len(hits) if k is None else min(k, len(hits)),
            latency_ms=latency_ms,
            degraded=degraded,
            reason=reason,
        )
        emit(sink, event)
    return RerankResult(ordered, record, scores.provider, unscored, degraded, reason, latency_ms)


async def _score(scorer: Scorer, query: str, hits: list[Hit], deadline: Deadline) -> Scores:
    if not hits:
        return Scores((), display_name(scorer))
    try:
        scores = await scorer.score(query, hits, deadline=deadline)
        if len(scores.values) != len(hits):
            raise ResiftError(f"{len(scores.values)} scores for {len(hits)} hits")
    except UnsupportedLanguageError as exc:
        # Not a failure: the model was not trained on this language.
        return Scores([None] * len(hits), display_name(scorer), degraded=True, reason=str(exc))
    except Exception as exc:
        reason = f"{display_name(scorer)} failed: {redact(exc)}"
        log.warning("reranking degraded: %s", reason)
        return Scores([None] * len(hits), display_name(scorer), degraded=True, reason=reason)
    return scores


def order_by_scores(
    hits: Sequence[Hit],
    values: Sequence[float | None],
    scores: Scores,
    info: ScorerInfo,
    *,
    without_text: Collection[int] = (),
    rest: Sequence[Hit] = (),
    stage: str = "rerank",
) -> tuple[list[Hit], StageRecord]:
    """Return hits by their values, then unscored hits, then `rest`, with the record of the stage.

    `without_text` are the positions of hits that were not scored because they have no text.
    """
    # Equal values are ordered by id; the position only separates equal ids.
    scored = sorted([(-value, hits[i].id, i) for i, value in enumerate(values) if value is not None])
    unscored = [i for i, value in enumerate(values) if value is None]
    order = [*[i for _, _, i in scored], *unscored]
    ordered_values = (*[values[i] for i in order], *[None] * len(rest))
    ranked = [*[hits[i] for i in order], *rest]
    # Without any new score, the old scores still belong to the order.
    if scored:
        ranked = with_scores(ranked, ordered_values, provider=scores.provider)
    reason = scores.reason or "not scored"
    notes = {
        **scores.notes,
        **{hits[i].id: "no text to score" if i in without_text else reason for i in unscored},
        **dict.fromkeys([hit.id for hit in rest], f"below the top {len(hits)}, not reranked"),
    }
    record = StageRecord(
        kind=StageKind.RERANK,
        name=stage,
        source=scores.provider,
        ids=tuple([hit.id for hit in ranked]),
        scores=ordered_values,
        note=scores.note,
        notes=notes,
        score_scale=info.score_scale,
        languages=info.languages,
        evidence=scores.usage,
    )
    return ranked, record


def _with_text(hit: Hit, policy: MissingText, keys: Sequence[str] | None) -> Hit | None:
    if hit.text.strip():
        return hit
    text = read_text(hit.metadata, keys).text or (hit.id if policy == "id" else "")
    if text:
        return replace(hit, text=text)
    if policy == "raise":
        raise InvalidHitError(f"Hit {hit.id!r} has no text to score.")
    return hit if policy == "empty" else None


class FusesThenScores:
    """Base of scorers that can also fuse lists. `fuse_timeout_s` limits the scoring; None means no limit."""

    name: str
    fuse_timeout_s: float | None = None

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one score per hit."""
        raise NotImplementedError

    async def fuse(
        self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None
    ) -> list[Hit]:
        """Fuse the lists by reciprocal rank and return the k with the best scores."""
        deadline = Deadline.after(self.fuse_timeout_s)
        return await fuse_then_rescore(self, per_store, k=k, query=query, deadline=deadline)


async def fuse_then_rescore(
    scorer: Scorer,
    per_store: Sequence[Sequence[Hit]],
    *,
    k: int,
    query: str | None,
    deadline: Deadline | None = None,
) -> FusedHits:
    """Fuse the lists by reciprocal rank, score every hit of the pool, return the best k.

    If the scorer fails, the fused order remains and the record has the reason.
    """
    name = display_name(scorer)
    if query is None or not check_query(query, allow_empty=True).strip():
        raise InputError(f"{name!r} scores hits against the query; pass it as query= to fuse.")
    ranking = await rescore(scorer, query, rrf(per_store), k=k, deadline=deadline)
    return FusedHits(ranking.hits, *ranking.trace)
