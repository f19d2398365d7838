"""Scores from 0 to 1: the calibrated probability of the reranker, and the relevance that people see.

The order of a ranking stays the same. Only the number of each hit changes, and it never rises with the rank.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

from resift.deadline import Deadline
from resift.errors import InputError
from resift.protocols import HasModelName, Scorer, describe_scorer, display_name
from resift.ranking.calibration import (
    Calibrator,
    Temperature,
    load_calibrator,
    shipped_calibrator,
    sigmoid,
)
from resift.ranking.evidence import evidence
from resift.rerankers.rescore import rescore
from resift.text.analysis import Analyzer
from resift.types import Hit, Ranking, StageKind, StageRecord, with_scores

ScoreFormat = Literal["raw", "probability"]
"""`raw` is the output of the model, such as the logit of a cross-encoder. `probability` is from 0 to 1."""

Calibration = Calibrator | str | os.PathLike[str]
"""A calibrator, or the path of a file that `resift calibrate` wrote."""


def check_scale(scores: str, calibration: Calibration | None) -> bool:
    """Return whether probabilities are requested; refuse other words, and a calibration for raw scores."""
    if scores not in get_args(ScoreFormat):
        raise InputError(f"scores is {scores!r}; write 'raw' or 'probability'.")
    if calibration is not None and scores != "probability":
        raise InputError("A calibration was given, but not scores='probability', which uses it.")
    return scores == "probability"


def calibrator_for(scorer: Scorer, calibration: Calibration | None) -> Calibrator:
    """Return the given calibration or the one of the scorer's model; raise InputError without either."""
    if isinstance(calibration, (str, os.PathLike)):
        return load_calibrator(os.fspath(calibration))
    calibrator = calibration or shipped_calibrator_for(scorer) or activation_calibrator(scorer)
    if calibrator is None:
        name = scorer.model_name if isinstance(scorer, HasModelName) else display_name(scorer)
        raise InputError(
            f"No calibration ships for {name!r}. Make one from labeled scores with: "
            "resift calibrate judged.jsonl -o calibration.json; then pass that file as the calibration."
        )
    return calibrator


def shipped_calibrator_for(scorer: Scorer | None) -> Calibrator | None:
    """Return the calibration that ships with the scorer's model, if there is one."""
    digest = "" if scorer is None else describe_scorer(scorer).model_digest
    return shipped_calibrator(digest) if digest else None


def activation_calibrator(scorer: Scorer) -> Calibrator | None:
    """Return the logistic function for a pinned model that was trained to return its value, else None."""
    from resift.errors import ModelNotAllowedError
    from resift.models.registry import find_spec

    if not isinstance(scorer, HasModelName):
        return None
    try:
        spec = find_spec(scorer.model_name)
    except ModelNotAllowedError:  # a hosted model
        return None
    return Temperature(1.0) if spec.score_activation == "sigmoid" else None


def relevance(ranking: Ranking, calibrator: Calibrator | None = None) -> tuple[float, ...]:
    """Return a number from 0 to 1 per hit that never rises with the rank: how well it answers the query.

    It is the probability by the last reranker and `calibrator`. Without a calibrator, logits go through the
    logistic function, and probabilities and cosines stay the same. Scores of an unknown scale count as
    probabilities if all are between 0 and 1, otherwise as logits. If the final order differs from the
    reranker's, probabilities of neighboring ranks are averaged until they fall (isotonic regression, which
    keeps their mean). An unscored hit gets the number of the hit above it, as an upper bound. Without any
    reranker, the number is the share of the query's words in the hit, averaged in the same way.
    """
    raw = [last[1] if last else None for last in evidence(ranking.trace, ranking.ids).last_scores()]
    scores = [score for score in raw if score is not None]
    if not scores:
        return tuple(never_rising(_word_shares(ranking)))
    if calibrator is not None:
        probabilities = [calibrator.probability(score) for score in scores]
    else:
        records = ranking.trace.by_kind(StageKind.RERANK)
        scale = [record.score_scale for record in records if record.scores][-1]
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
    """Return the closest values, by least squares, that never rise (pool adjacent violators)."""
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
        present = sum(not terms.isdisjoint(spellings) for spellings in words)
        shares.append(present / len(words) if words else 0.0)
    return shares


def as_probabilities(
    ranking: Ranking, calibrator: Calibrator, *, later_scores: Mapping[str, float] | None = None
) -> Ranking:
    """Return the ranking with probabilities as scores, None for unscored hits.

    If the order differs from the reranker's, probabilities are averaged as in `relevance`. `later_scores` are
    scores of hits that were scored after the ranking was made.
    """
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
    # A separate record: the reranker's has the raw scores, and both stay readable.
    record = StageRecord(
        kind=StageKind.SHAPE,
        name="probability",
        ids=tuple(ranking.ids),
        scores=values[:kept],
        notes={id: f"scored for this: {score:.4g}" for id, score in later.items()},
    )
    scored = tuple(with_scores(hits, values))
    return replace(ranking, hits=scored[:kept], cut=scored[kept:], trace=ranking.trace.append(record))


async def read_and_calibrate(
    ranking: Ranking, scorer: Scorer, calibrator: Calibrator, *, deadline: Deadline
) -> Ranking:
    """Score the unscored hits of a ranking, then return it with probabilities.

    If the scorer fails or is late, these hits have no number, and the ranking is `degraded` with the reason.
    """
    last_scores = evidence(ranking.trace, ranking.ids).last_scores()
    unscored: list[Hit] = [hit for hit, last in zip(ranking.hits, last_scores, strict=True) if last is None]
    if not unscored:
        return as_probabilities(ranking, calibrator)
    rescored = await rescore(scorer, ranking.query, unscored, k=len(unscored), deadline=deadline)
    scores = zip(rescored.ids, rescored.scores(), strict=True)
    later = {id: score for id, score in scores if score is not None}
    result = as_probabilities(ranking, calibrator, later_scores=later)
    if not rescored.degraded:
        return result
    reasons = dict.fromkeys(filter(None, (ranking.reason, rescored.reason)))
    return replace(result, degraded=True, reason="; ".join(reasons) or None)
