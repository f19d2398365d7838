"""One place where scores become an order: sorting, what was not scored, the record, cut, degradation."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import replace

from resift.candidates import MissingText
from resift.deadline import Deadline
from resift.errors import InvalidHitError, ResiftError, UnfamiliarTextError, redacted
from resift.events import Reranked, Sink, emit
from resift.protocols import Scorer, describe_scorer, name_of
from resift.records import read_text
from resift.types import (
    Hit,
    Ranking,
    ScorerInfo,
    Scores,
    StageKind,
    StageRecord,
    Trace,
    cut_record,
    rescored,
    trace_of,
)
from resift.validation import check_k

log = logging.getLogger("resift.rerankers")


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
    """Order hits by a scorer's judgement and keep the best k.

    Never raises for a scorer that fails: the order and the scores stay, and the ranking says `degraded` and
    why. Hits that were not judged stand last in their old order, without a score; nothing is lost (`cut`
    holds what k left out). `trace` is how the hits got here; a ranking brings its own.
    """
    check_k(k)
    started = time.perf_counter()
    # A hit without text is not asked about: a model would score an empty one like any other.
    texts = [_with_text(hit, missing_text, text_keys) for hit in hits]
    asked = [position for position, hit in enumerate(texts) if hit is not None]
    scores = await _ask(
        scorer, query, [hit for hit in texts if hit is not None], deadline or Deadline.never()
    )
    values: list[float | None] = [None] * len(hits)
    for at, value in zip(asked, scores.values, strict=True):
        values[at] = _usable(value)
    info = scores.scorer or describe_scorer(scorer)
    ordered, record = _ordered(hits, values, set(asked), scores, info, stage=stage)
    elapsed_ms = (time.perf_counter() - started) * 1000
    degraded, reason = _degraded(values, asked, scores)
    ranking = Ranking(
        tuple(ordered[:k]),
        degraded=degraded,
        reason=reason,
        tier=scores.provider,
        unscored=tuple(id for id, score in zip(record.ids, record.scores, strict=True) if score is None),
        timings={stage: elapsed_ms},
        cut=tuple(ordered[k:]),
        trace=(trace_of(hits) if trace is None else trace).then(record, *cut_record(record.ids, k)),
        query=query,
    )
    emit(
        sink,
        Reranked(
            provider=scores.provider,
            candidates=len(hits),
            unscored=len(ranking.unscored),
            kept=len(ranking),
            latency_ms=elapsed_ms,
            degraded=ranking.degraded,
            reason=ranking.reason,
        ),
    )
    return ranking


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
    stage: str,
) -> tuple[list[Hit], StageRecord]:
    # By (-score, id), as everywhere; the place only keeps equal ids apart.
    judged = sorted((-value, hits[at].id, at) for at, value in enumerate(values) if value is not None)
    rest = [at for at, value in enumerate(values) if value is None]
    order = [*(at for _, _, at in judged), *rest]
    given = tuple(values[at] for at in order)
    # Where nobody was judged, the scores that the hits came with still compare with one another.
    ranked = rescored((hits[at] for at in order), given) if judged else list(hits)
    for place in range(len(judged)):
        ranked[place] = ranked[place].with_metadata(rerank_provider=scores.provider)
    unasked, why = "no text to score", scores.reason or "not scored"
    record = StageRecord(
        kind=StageKind.RERANK,
        name=stage,
        source=scores.provider,
        ids=tuple(hit.id for hit in ranked),
        scores=given,
        note=scores.note,
        notes={**scores.notes, **{hits[at].id: why if at in asked else unasked for at in rest}},
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


def _usable(value: float | None) -> float | None:
    if value is None:
        return None
    # A scorer of a stranger may answer with NaN, which has no place in any order.
    number = float(value)
    return number if math.isfinite(number) else None


def _with_text(hit: Hit, policy: MissingText, keys: Sequence[str] | None) -> Hit | None:
    if hit.text.strip():
        return hit
    text = read_text(hit.metadata, keys).text or (hit.id if policy == "id" else "")
    if text:
        return replace(hit, text=text)
    if policy == "raise":
        raise InvalidHitError(f"Hit {hit.id!r} has no text to score.")
    return hit if policy == "empty" else None
