"""One place where scores become an order: sorting, what was not scored, the record, cut, degradation."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from resift.deadline import Deadline
from resift.errors import InvalidHitError, ResiftError, UnfamiliarTextError, redacted
from resift.events import Reranked, Sink, emit
from resift.external.candidates import MissingText
from resift.external.records import read_text
from resift.protocols import Scorer, describe_scorer, name_of
from resift.types import (
    Hit,
    Ranking,
    ScorerInfo,
    Scores,
    StageKind,
    StageRecord,
    Trace,
    cut_record,
    trace_of,
    with_scores,
)
from resift.validation import check_k

log = logging.getLogger("resift.rerankers")


@dataclass(frozen=True, slots=True)
class RerankResult:
    """Hits in the scorer's order, and the record of it; `unscored` are the ids without a score."""

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

    Never raises for a scorer that fails: the order and the scores stay, and the ranking says `degraded` and
    why. Hits that were not scored come last in their old order, without a score; nothing is lost (`cut`
    holds what k left out). `trace` is how the hits got here; a ranking brings its own.
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
        trace=(trace_of(hits) if trace is None else trace).then(record, *cut_record(record.ids, k)),
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
        hit if hit.text and not hit.text.isspace() else _with_text(hit, missing_text, text_keys)
        for hit in hits
    ]
    asked = [i for i, hit in enumerate(texts) if hit is not None]
    scores = await _ask(
        scorer, query, [hit for hit in texts if hit is not None], deadline or Deadline.never()
    )
    values: list[float | None] = [None] * len(hits)
    for i, value in zip(asked, scores.values, strict=True):
        # The scorer of another package may return NaN, which has no place in any order.
        if value is not None and math.isfinite(number := float(value)):
            values[i] = number
    info = scores.scorer or describe_scorer(scorer)
    ordered, record = _ordered(hits, values, set(asked), scores, info, rest=rest, stage=stage)
    scored = sum(value is not None for value in values)
    unscored = record.ids[scored : len(hits)]
    degraded, reason = _degraded(values, asked, scores)
    latency_ms = (time.perf_counter() - started) * 1000
    emit(
        sink,
        Reranked(
            provider=scores.provider,
            candidates=len(hits),
            unscored=len(unscored),
            kept=len(hits) if k is None else min(k, len(hits)),
            latency_ms=latency_ms,
            degraded=degraded,
            reason=reason,
        ),
    )
    return RerankResult(ordered, record, scores.provider, unscored, degraded, reason, latency_ms)


async def _ask(scorer: Scorer, query: str, hits: list[Hit], deadline: Deadline) -> Scores:
    if not hits:
        return Scores((), name_of(scorer))
    try:
        scores = await scorer.score(query, hits, deadline=deadline)
        if len(scores.values) != len(hits):
            raise ResiftError(f"{len(scores.values)} scores for {len(hits)} hits")
    except UnfamiliarTextError as exc:
        # Nothing failed: a model that does not know the language has no say.
        return Scores([None] * len(hits), name_of(scorer), degraded=True, reason=str(exc))
    except Exception as exc:
        reason = f"{name_of(scorer)} failed: {redacted(exc)}"
        log.warning("reranking degraded: %s", reason)
        return Scores([None] * len(hits), name_of(scorer), degraded=True, reason=reason)
    return scores


def _ordered(
    hits: Sequence[Hit],
    values: Sequence[float | None],
    asked: set[int],
    scores: Scores,
    info: ScorerInfo,
    *,
    rest: Sequence[Hit],
    stage: str,
) -> tuple[list[Hit], StageRecord]:
    # By (-score, id), as everywhere; the place only keeps equal ids apart.
    scored = sorted((-value, hits[i].id, i) for i, value in enumerate(values) if value is not None)
    unscored = [i for i, value in enumerate(values) if value is None]
    order = [*(i for _, _, i in scored), *unscored]
    given = (*(values[i] for i in order), *(None for _ in rest))
    ranked = [*(hits[i] for i in order), *rest]
    # Without any new score the old ones still compare with one another.
    if scored:
        ranked = with_scores(ranked, given, provider=scores.provider)
    unasked, why = "no text to score", scores.reason or "not scored"
    notes = {**scores.notes, **{hits[i].id: why if i in asked else unasked for i in unscored}}
    if rest:
        notes |= dict.fromkeys([hit.id for hit in rest], f"below the top {len(hits)}, not reranked")
    record = StageRecord(
        kind=StageKind.RERANK,
        name=stage,
        source=scores.provider,
        ids=tuple([hit.id for hit in ranked]),
        scores=given,
        note=scores.note,
        notes=notes,
        score_scale=info.score_scale,
        languages=info.languages,
    )
    return ranked, record


def _degraded(
    values: Sequence[float | None], asked: Sequence[int], scores: Scores
) -> tuple[bool, str | None]:
    if values and not asked:
        return True, scores.reason or f"{scores.provider} judged nothing: no hit has text to score"
    failed = sum(values[at] is None for at in asked)
    reason = scores.reason or (f"{failed} of {len(asked)} hits were not scored" if failed else None)
    return scores.degraded or (failed > 0 and not scores.settled), reason


def _with_text(hit: Hit, policy: MissingText, keys: Sequence[str] | None) -> Hit | None:
    if hit.text.strip():
        return hit
    text = read_text(hit.metadata, keys).text or (hit.id if policy == "id" else "")
    if text:
        return replace(hit, text=text)
    if policy == "raise":
        raise InvalidHitError(f"Hit {hit.id!r} has no text to score.")
    return hit if policy == "empty" else None
