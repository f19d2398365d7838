"""Search with probabilities or relevance values as scores, and an optional threshold."""

from __future__ import annotations

from resift.errors import InputError
from resift.pipeline.pipeline import Pipeline
from resift.ranking.calibration import drop_below
from resift.rerankers.rescore import (
    Calibration,
    ScoreFormat,
    calibrator_for,
    check_scale,
    relevance,
    score_and_calibrate,
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
    """Search, replace scores with probabilities if requested, and drop hits below `min_score`."""
    as_probability = check_scale(scores, calibration)
    scorer = pipeline.scorer
    if as_probability and scorer is None:
        raise InputError(
            "Probabilities come from a reranker, and this pipeline has none. Add one, or use scores='raw'."
        )
    calibrator = calibrator_for(scorer, calibration) if as_probability and scorer is not None else None
    # The search and the scoring of the remaining hits share one deadline.
    deadline = pipeline.deadline_after(deadline_s)
    ranking = await pipeline.search(query, k=k, where=where, deadline=deadline)
    if scorer is not None and calibrator is not None:
        ranking = await score_and_calibrate(ranking, scorer, calibrator, deadline=deadline)
    return ranking if min_score is None else drop_below(ranking, min_score)


async def search_with_relevance(
    pipeline: Pipeline,
    query: str,
    *,
    k: int | None = None,
    where: Where | None = None,
    deadline_s: float | None = None,
    min_score: float | None = None,
) -> tuple[Ranking, tuple[float, ...]]:
    """Return the ranking and the relevance of each hit, including hits dropped by `min_score`.

    The hits keep the scores from the pipeline.
    """
    ranking = await pipeline.search(query, k=k, where=where, deadline_s=deadline_s)
    shown = ranking_relevance(ranking, pipeline)
    if min_score is not None:
        ranking = drop_below(ranking, min_score, shown=shown)
    return ranking, shown


def ranking_relevance(ranking: Ranking, pipeline: Pipeline) -> tuple[float, ...]:
    """Return the relevance of each hit in a ranking of this pipeline, from 0 to 1."""
    return relevance(ranking, shipped_calibrator_for(pipeline.scorer))
