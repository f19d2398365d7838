"""A pipeline's answer with the scores that a caller asked for: probabilities, and none under a threshold."""

from __future__ import annotations

from resift.deadline import Deadline
from resift.errors import InputError
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.stages import Rerank
from resift.protocols import Scorer
from resift.ranking.shape.probabilities import at_least
from resift.rerankers.probability import (
    Calibration,
    ScoreFormat,
    calibrator_for,
    check_scale,
    read_and_calibrate,
    relevance,
    shipped_calibrator_for,
)
from resift.types import Ranking, Where


async def search_with_scores(
    pipeline: Pipeline,
    query: str,
    *,
    k: int | None = None,
    where: Where | None = None,
    deadline_s: float | None = None,
    scores: ScoreFormat = "raw",
    calibration: Calibration | None = None,
    min_score: float | None = None,
) -> Ranking:
    """Search, then put the reranker's probability beside each hit and leave out what is under `min_score`."""
    wanted = check_scale(scores, calibration)
    scorer = scorer_of(pipeline)
    calibrator = calibrator_for(_needed(scorer), calibration) if wanted else None
    # Started before the search: reading for probabilities gets what that leaves.
    deadline = Deadline.after(deadline_s)
    ranking = await pipeline.search(query, k=k, where=where, deadline_s=deadline_s)
    if scorer is not None and calibrator is not None:
        ranking = await read_and_calibrate(ranking, scorer, calibrator, deadline=deadline)
    return ranking if min_score is None else at_least(ranking, min_score)


async def search_with_relevance(
    pipeline: Pipeline,
    query: str,
    *,
    k: int | None = None,
    where: Where | None = None,
    deadline_s: float | None = None,
    min_score: float | None = None,
) -> tuple[Ranking, tuple[float, ...]]:
    """Search, and return next to the ranking the relevance of each hit, then of those under `min_score`.

    The hits keep the pipeline's own scores.
    """
    ranking = await pipeline.search(query, k=k, where=where, deadline_s=deadline_s)
    shown = relevance_of(ranking, pipeline)
    if min_score is not None:
        ranking = at_least(ranking, min_score, shown=shown)
    return ranking, shown


def relevance_of(ranking: Ranking, pipeline: Pipeline) -> tuple[float, ...]:
    """Return the relevance of each hit of this pipeline's ranking, from 0 to 1."""
    return relevance(ranking, shipped_calibrator_for(scorer_of(pipeline)))


def scorer_of(pipeline: Pipeline) -> Scorer | None:
    """Return the scorer of the last rerank stage, None where nothing reranks."""
    return next((stage.scorer for stage in reversed(pipeline.stages) if isinstance(stage, Rerank)), None)


def _needed(scorer: Scorer | None) -> Scorer:
    if scorer is None:
        raise InputError(
            "Probabilities come from a reranker, and this pipeline has none. "
            "Give it one, or leave the scores raw."
        )
    return scorer
