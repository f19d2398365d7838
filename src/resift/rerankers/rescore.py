"""Rank hits by a scorer's scores with a stage record, and convert scores to probabilities for display."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Literal, get_args

from resift import errors
from resift.deadline import Deadline
from resift.errors import InputError, ResiftError, redact
from resift.events import Reranked, Sink, ambient_sink, emit, is_observed
from resift.external.candidates import MissingText
from resift.external.records import read_text
from resift.protocols import FollowsInstructions, HasModelName, Scorer, describe_scorer, display_name
from resift.ranking.calibration import Calibrator, Temperature, load_calibrator, shipped_calibrator, sigmoid
from resift.ranking.evidence import evidence
from resift.ranking.fusion import rrf
from resift.text.analysis import Analyzer
from resift.types import Hit, Ranking, ScorerInfo, Scores, StageKind, StageRecord
from resift.types.hit import with_scores
from resift.types.ranking import get_trace
from resift.types.trace import FusedHits, Trace, cut_record
from resift.validation import check_k, check_query, show_value

log = logging.getLogger("resift.rerankers")


async def rescore(
    scorer: Scorer,
    query: str,
    hits: Sequence[Hit],
    rest: Sequence[Hit] = (),
    *,
    k: int,
    instruction: str | None = None,
    trace: Trace | None = None,
    deadline: Deadline | None = None,
    missing_text: MissingText = "last",
    text_keys: Sequence[str] | None = None,
    stage: str = "rerank",
    sink: Sink | None = None,
) -> Ranking:
    """Order hits by a scorer's scores, append `rest`, which is not scored, and keep the best k.

    If the scorer fails, order and scores are unchanged, and the ranking is `degraded` with the reason. Unscored
    hits come last in their original order, without a score; `cut` contains the hits after k. `trace` is the
    trace so far, by default that of `hits`. `instruction` is passed to scorers that follow one; otherwise
    `ranking.warnings` reports that it was not used.
    """
    check_k(k)
    if instruction is not None:
        if not isinstance(instruction, str) or not instruction.strip():
            raise InputError(f"instruction is {show_value(instruction)}; pass a text with ranking criteria.")
        if isinstance(scorer, FollowsInstructions):
            scorer = scorer.with_instruction(instruction)
    start = time.perf_counter()
    # A hit without text is not scored, because a model would score an empty text like any other.
    texts = [hit if hit.text.strip() else _add_text(hit, missing_text, text_keys) for hit in hits]
    with nullcontext() if sink is None else ambient_sink(sink):
        scores, values = await _score_texts(scorer, query, texts, deadline or Deadline.never())
    info = scores.scorer or describe_scorer(scorer)
    without_text = {i for i, hit in enumerate(texts) if hit is None}
    ordered, record = order_by_scores(hits, values, scores, info, without_text=without_text, rest=rest, stage=stage)
    scored, scorable = len(hits) - values.count(None), len(hits) - len(without_text)
    degraded, reason = scores.degraded or (scored < scorable and not scores.settled), scores.reason
    if hits and not scorable:
        degraded, reason = True, reason or f"{scores.provider} scored nothing: no hit has text"
    elif scored < scorable:
        reason = reason or f"{scorable - scored} of {scorable} hits were not scored"
    unscored = record.ids[scored : len(hits)]
    latency_ms = (time.perf_counter() - start) * 1000
    if is_observed(sink):
        event = Reranked(
            provider=scores.provider,
            candidates=len(hits),
            unscored=len(unscored),
            kept=min(k, len(hits)),
            latency_ms=latency_ms,
            degraded=degraded,
            reason=reason,
        )
        emit(sink, event)
    ignored = instruction is not None and not info.supports_instruction
    return Ranking(
        tuple(ordered[:k]),
        degraded=degraded,
        reason=reason,
        tier=scores.provider,
        unscored=unscored,
        timings={stage: latency_ms},
        cut=tuple(ordered[k:]),
        trace=(get_trace(hits) if trace is None else trace).append(record, *cut_record(record.ids, k)),
        query=query,
        input_ids=tuple([hit.id for hit in hits]),
        warnings=(f"instruction was not used: {scores.provider} does not follow instructions",) if ignored else (),
    )


async def _score_texts(
    scorer: Scorer, query: str, hits: Sequence[Hit | None], deadline: Deadline
) -> tuple[Scores, list[float | None]]:
    """Return the result of the scorer, or the reason why it failed, and a finite score or None for each hit."""
    scorable = [hit for hit in hits if hit is not None]
    try:
        scores = (
            await scorer.score(query, scorable, deadline=deadline) if scorable else Scores((), display_name(scorer))
        )
        if len(scores.values) != len(scorable):
            raise ResiftError(f"{len(scores.values)} scores for {len(scorable)} hits")
    except errors.UnsupportedLanguageError as exc:
        # This is not a failure: the model was not trained on this language.
        scores = Scores([None] * len(scorable), display_name(scorer), degraded=True, reason=str(exc))
    except Exception as exc:
        reason = f"{display_name(scorer)} failed: {redact(exc)}"
        log.warning("reranking degraded: %s", reason)
        scores = Scores([None] * len(scorable), display_name(scorer), degraded=True, reason=reason)
    # A third-party scorer may return NaN, which cannot be ordered.
    finite = iter([None if value is None or not math.isfinite(value) else float(value) for value in scores.values])
    return scores, [None if hit is None else next(finite) for hit in hits]


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
    """Return hits ordered by value, then unscored hits, then `rest`, and the record of the stage."""
    # Equal values are ordered by id; the position only breaks ties between equal ids.
    scored = sorted([(-value, hits[i].id, i) for i, value in enumerate(values) if value is not None])
    unscored = [i for i, value in enumerate(values) if value is None]
    order = [*[i for _, _, i in scored], *unscored]
    ordered_values = (*[values[i] for i in order], *[None] * len(rest))
    ranked = [*[hits[i] for i in order], *rest]
    # Without any new score, the previous scores still apply to the order.
    if scored:
        ranked = with_scores(ranked, ordered_values, provider=scores.provider)
    reason = scores.reason or "not scored"
    notes = dict.fromkeys([hit.id for hit in rest], f"below the top {len(hits)}, not reranked")
    notes |= scores.notes
    notes |= {hits[i].id: "no text to score" if i in without_text else reason for i in unscored}
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


def _add_text(hit: Hit, policy: MissingText, keys: Sequence[str] | None) -> Hit | None:
    """Return the hit with a text from its metadata or id; None if it is not to be scored."""
    text = read_text(hit.metadata, keys).text or (hit.id if policy == "id" else "")
    if text:
        return replace(hit, text=text)
    if policy == "raise":
        raise errors.InvalidHitError(f"Hit {hit.id!r} has no text to score.")
    return hit if policy == "empty" else None


class FusesThenScores:
    """Base class of scorers that can also fuse lists. `fuse_timeout_s` limits the scoring time; None means no limit."""

    name: str
    fuse_timeout_s: float | None = None

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one score per hit."""
        raise NotImplementedError

    async def fuse(self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None) -> list[Hit]:
        """Fuse the lists by reciprocal rank and return the k hits with the best scores."""
        deadline = Deadline.after(self.fuse_timeout_s)
        return await fuse_then_rescore(self, per_store, k=k, query=query, deadline=deadline)


async def fuse_then_rescore(
    scorer: Scorer, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None, deadline: Deadline | None = None
) -> FusedHits:
    """Fuse the lists by reciprocal rank, score all hits, and return the k best; keep the fused order on failure."""
    if query is None or not check_query(query, allow_empty=True).strip():
        raise InputError(f"{display_name(scorer)!r} scores hits against the query; pass it as query= to fuse.")
    ranking = await rescore(scorer, query, rrf(per_store), k=k, deadline=deadline)
    return FusedHits(ranking.hits, *ranking.trace)


ScoreFormat = Literal["raw", "probability"]
"""`raw` is the output of the model, such as a cross-encoder's logit. `probability` is a number from 0 to 1."""

Calibration = Calibrator | str | os.PathLike[str]  # a calibrator, or the path of a file written by `resift calibrate`


def check_scale(scores: str, calibration: Calibration | None) -> bool:
    """Return whether probabilities are requested; reject unknown values, and a calibration for raw scores."""
    # Callers may pass an array of document scores by mistake, and an array has no truth value.
    if not isinstance(scores, str) or scores not in get_args(ScoreFormat):
        raise InputError(f"scores is {show_value(scores)}; pass 'raw' or 'probability'.")
    if calibration is not None and scores != "probability":
        raise InputError("calibration requires scores='probability'; raw scores are not calibrated.")
    return scores == "probability"


def calibrator_for(scorer: Scorer, calibration: Calibration | None) -> Calibrator:
    """Return the given calibration, or else that of the scorer's model; raise InputError if there is neither."""
    if isinstance(calibration, (str, os.PathLike)):
        return load_calibrator(os.fspath(calibration))
    calibrator = calibration or shipped_calibrator_for(scorer)
    if calibrator is None and isinstance(scorer, HasModelName):
        from resift.models.registry import find_spec

        with suppress(errors.ModelNotAllowedError):  # raised for a hosted model
            # The pinned model was trained with a sigmoid output.
            if find_spec(scorer.model_name).score_activation == "sigmoid":
                return Temperature(1.0)
    if calibrator is None:
        name = scorer.model_name if isinstance(scorer, HasModelName) else display_name(scorer)
        raise InputError(
            f"No calibration ships for {name!r}. Create one from labeled scores with: "
            "resift calibrate judged.jsonl -o calibration.json; then pass that file as the calibration."
        )
    return calibrator


def shipped_calibrator_for(scorer: Scorer | None) -> Calibrator | None:
    """Return the calibration that ships for the scorer's model, or None."""
    digest = "" if scorer is None else describe_scorer(scorer).model_digest
    return shipped_calibrator(digest) if digest else None


def relevance(ranking: Ranking, calibrator: Calibrator | None = None) -> tuple[float, ...]:
    """Return the relevance of each hit to the query, from 0 to 1; it never increases with the rank.

    The value is the probability from the last reranker and `calibrator`. Without a calibrator, logits pass through the
    logistic function. Scores of an unknown scale count as probabilities if all are between 0 and 1. Where the final
    order differs from the reranker's, probabilities are averaged (isotonic regression). An unscored hit gets the value
    of the hit above it. Without any reranker, the value is the share of the query's words in the hit, averaged in the
    same way.
    """
    raw = [last[1] if last else None for last in evidence(ranking.trace, ranking.ids).last_scores()]
    scores = [score for score in raw if score is not None]
    if not scores:
        return tuple(never_rising(_word_shares(ranking)))
    if calibrator is not None:
        probabilities = [calibrator.probability(score) for score in scores]
    else:
        scale = [record.score_scale for record in ranking.trace.by_kind(StageKind.RERANK) if record.scores][-1]
        bounded = min(scores) >= 0 and max(scores) <= 1 if scale in (None, "unknown") else scale != "logit"
        probabilities = [min(1.0, max(0.0, score)) if bounded else sigmoid(score) for score in scores]
    fitted = never_rising(probabilities)
    remaining = iter(fitted)
    values, current = [], fitted[0]
    for score in raw:
        current = current if score is None else next(remaining)
        values.append(current)
    return tuple(values)


def never_rising(values: Sequence[float]) -> list[float]:
    """Return the least-squares fit that never increases (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []  # mean, count
    for value in values:
        block = (value, 1)
        while blocks and blocks[-1][0] < block[0]:
            mean, count = blocks.pop()
            total = count + block[1]
            block = ((mean * count + block[0] * block[1]) / total, total)
        blocks.append(block)
    return [mean for mean, count in blocks for _ in range(count)]


def _word_shares(ranking: Ranking) -> list[float]:
    analyzer = Analyzer()
    shares = []
    for hit in ranking:
        text = analyzer.analyze(hit.text)
        terms = set(text.terms)
        words = analyzer.query_words(ranking.query, languages=text.languages)
        shares.append(sum(not terms.isdisjoint(spellings) for spellings in words) / len(words) if words else 0.0)
    return shares


def as_probabilities(
    ranking: Ranking, calibrator: Calibrator, *, later_scores: Mapping[str, float] | None = None
) -> Ranking:
    """Return the ranking with probabilities as scores; `later_scores` are of hits that were scored afterwards."""
    later = later_scores or {}
    hits = [*ranking.hits, *ranking.cut]
    last_scores = evidence(ranking.trace, [hit.id for hit in hits]).last_scores()
    raw = [later.get(hit.id, last[1] if last else None) for hit, last in zip(hits, last_scores, strict=True)]
    kept = len(ranking.hits)
    fitted = iter(never_rising([calibrator.probability(score) for score in raw[:kept] if score is not None]))
    values = (
        *[None if score is None else next(fitted) for score in raw[:kept]],
        *[None if score is None else calibrator.probability(score) for score in raw[kept:]],
    )
    # A separate record, so that the raw scores in the reranker's record stay available.
    record = StageRecord(
        kind=StageKind.SHAPE,
        name="probability",
        ids=tuple(ranking.ids),
        scores=values[:kept],
        notes={id: f"scored afterwards: {score:.4g}" for id, score in later.items()},
    )
    scored = tuple(with_scores(hits, values))
    return replace(ranking, hits=scored[:kept], cut=scored[kept:], trace=ranking.trace.append(record))


async def score_and_calibrate(ranking: Ranking, scorer: Scorer, calibrator: Calibrator, deadline: Deadline) -> Ranking:
    """Score the unscored hits in a ranking, and return it with probabilities; `degraded` if the scorer fails."""
    last_scores = evidence(ranking.trace, ranking.ids).last_scores()
    unscored: list[Hit] = [hit for hit, last in zip(ranking.hits, last_scores, strict=True) if last is None]
    if not unscored:
        return as_probabilities(ranking, calibrator)
    rescored = await rescore(scorer, ranking.query, unscored, k=len(unscored), deadline=deadline)
    later = {id: score for id, score in zip(rescored.ids, rescored.scores(), strict=True) if score is not None}
    result = as_probabilities(ranking, calibrator, later_scores=later)
    if not rescored.degraded:
        return result
    reasons = dict.fromkeys(filter(None, (ranking.reason, rescored.reason)))
    return replace(result, degraded=True, reason="; ".join(reasons) or None)
