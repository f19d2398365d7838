"""Scores from 0 to 1: what a reranker said of each hit, by the calibration of its model or one of your own.

The order never changes: it is the reranker's, or the pipeline's. Only the number beside a hit does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

from resift.deadline import Deadline
from resift.errors import InputError
from resift.protocols import OfModel, OfModelFile, Scorer, name_of
from resift.rerankers.rescore import rescore
from resift.shape.calibration import Calibrator, load_calibrator
from resift.shape.evidence import evidence
from resift.shape.shipped_calibrations import shipped_calibrator
from resift.types import Hit, Ranking, StageKind, StageRecord, rescored

ScoreScale = Literal["raw", "probability"]
"""`raw` is what the model says, a cross-encoder's logit; `probability` lies between 0 and 1."""

Calibration = Calibrator | str | os.PathLike[str]
"""A calibrator, or the file of one that `resift calibrate` wrote."""


def check_scale(scores: str, calibration: Calibration | None) -> bool:
    """Return whether probabilities are wanted; refuse any other word, and a calibration without them."""
    if scores not in get_args(ScoreScale):
        raise InputError(f"scores is {scores!r}; write 'raw' or 'probability'.")
    if calibration is not None and scores != "probability":
        raise InputError("A calibration was given, but not scores='probability', which uses it.")
    return scores == "probability"


def calibrator_for(scorer: Scorer, calibration: Calibration | None) -> Calibrator:
    """Return the calibration given, or the one that ships with the scorer's model; one must be there."""
    if isinstance(calibration, (str, os.PathLike)):
        return load_calibrator(os.fspath(calibration))
    digest = scorer.model_digest if isinstance(scorer, OfModelFile) else ""
    known = calibration or shipped_calibrator(digest)
    if known is None:
        name = scorer.model_name if isinstance(scorer, OfModel) else name_of(scorer)
        raise InputError(
            f"No calibration ships for {name!r}. Make one of judged scores with: "
            "resift calibrate judged.jsonl -o calibration.json; then give that file as the calibration."
        )
    return known


def as_probabilities(
    ranking: Ranking, calibrator: Calibrator, *, read: Mapping[str, float] | None = None
) -> Ranking:
    """Return the ranking with probabilities as scores, None where no reranker judged a hit.

    `read` are scores of hits that the reranker read after the ranking was made.
    """
    later = read or {}
    every = [*ranking.hits, *ranking.cut]
    judged = evidence(ranking.trace, [hit.id for hit in every]).last_judged()
    raw = [later.get(hit.id, said[1] if said else None) for hit, said in zip(every, judged, strict=True)]
    values = tuple(None if score is None else calibrator.probability(score) for score in raw)
    hits = tuple(rescored(every, values))
    kept = len(ranking.hits)
    # A record of its own: the reranker's has the raw scores, and both can be read.
    record = StageRecord(
        kind=StageKind.SHAPE,
        name="probability",
        ids=tuple(ranking.ids),
        scores=values[:kept],
        notes={id: f"read for this: {score:.4g}" for id, score in later.items()},
    )
    return replace(ranking, hits=hits[:kept], cut=hits[kept:], trace=ranking.trace.then(record))


async def read_and_calibrate(
    ranking: Ranking, scorer: Scorer, calibrator: Calibrator, *, deadline: Deadline
) -> Ranking:
    """Do what `as_probabilities` does, after the scorer has read the hits that it has not judged yet.

    A scorer that fails or is late costs only these hits their number; the ranking says `degraded` and why.
    """
    judged = evidence(ranking.trace, ranking.ids).last_judged()
    unread: list[Hit] = [hit for hit, said in zip(ranking.hits, judged, strict=True) if said is None]
    if not unread:
        return as_probabilities(ranking, calibrator)
    said = await rescore(scorer, ranking.query, unread, k=len(unread), deadline=deadline)
    missing = set(said.unscored)
    read = {hit.id: hit.score for hit in said if hit.id not in missing and hit.score is not None}
    done = as_probabilities(ranking, calibrator, read=read)
    if not said.degraded:
        return done
    reasons = dict.fromkeys(reason for reason in (ranking.reason, said.reason) if reason)
    return replace(done, degraded=True, reason="; ".join(reasons) or None)
