"""Rankings that carry probabilities, and one threshold for all providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from resift.errors import InputError
from resift.events import Sink
from resift.ranking.shape.calibration import Calibrator
from resift.ranking.shape.evidence import evidence
from resift.ranking.shape.shaped import Shaped, shaped
from resift.types import Hit, Ranking, StageKind, Trace, record_of, trace_of
from resift.validation import check_number

STAGE = "threshold"


def calibrate(
    hits: Sequence[Hit],
    calibrators: Calibrator | Mapping[str, Calibrator],
    *,
    trace: Trace | None = None,
) -> tuple[Hit, ...]:
    """Return the hits with metadata["probability"], each by the calibrator of the provider that scored it.

    The provider's own score is taken from the trace (a ranking brings its own), so that blending before
    does not matter; hits that no provider scored are judged by their score under the name "". Hits without
    a calibrator, or without any score, stay as they are.
    """
    known = trace_of(hits) if trace is None else trace
    judged = evidence(known, [hit.id for hit in hits]).last_judged()
    return tuple(_calibrated(hit, said, calibrators) for hit, said in zip(hits, judged, strict=True))


def above(hits: Sequence[Hit], threshold: float, *, sink: Sink | None = None) -> Shaped:
    """Keep the hits whose probability reaches the threshold; those without one are kept and noted."""
    if not 0 <= threshold <= 1:
        raise InputError(f"threshold is {threshold}; a probability lies between 0 and 1.")
    values = [_probability(hit) for hit in hits]
    kept = [hit for hit, value in zip(hits, values, strict=True) if value is None or value >= threshold]
    under = {
        hit.id: f"probability {value:.3g} < {threshold:.3g}"
        for hit, value in zip(hits, values, strict=True)
        if value is not None and value < threshold
    }
    unknown = values.count(None)
    notes = (f"{unknown} hits have no probability and were kept",) if unknown else ()
    cut = [hit for hit in hits if hit.id in under]
    return shaped(STAGE, hits, kept, cut, notes=notes, by_id=under, sink=sink)


def at_least(ranking: Ranking, min_score: float, *, shown: Sequence[float] | None = None) -> Ranking:
    """Drop the hits after the last one that reaches `min_score`; they are in `cut` with the reason.

    So no hit is dropped while one below it stays, even where a later stage changed the order of the scores.
    `shown` are the scores that people see, where these are not the hits' own. Hits without a score never
    reach it; a ranking without any score stays as it is.
    """
    least = check_number(min_score, "min_score")
    scores = [hit.score for hit in ranking] if shown is None else list(shown)
    passing = [rank for rank, score in enumerate(scores, start=1) if score is not None and score >= least]
    count = max(passing, default=0)
    if count == len(scores) or all(score is None for score in scores):
        return ranking
    kept, cut = ranking.hits[:count], ranking.hits[count:]
    notes = {
        hit.id: "no score" if score is None else f"score {score:.3g} < {least:.3g}"
        for hit, score in zip(cut, scores[count:], strict=True)
    }
    record = record_of(StageKind.CUT, "cut", kept, cut, notes=notes)
    return replace(ranking, hits=kept, cut=(*cut, *ranking.cut), trace=ranking.trace.then(record))


def _calibrated(
    hit: Hit, said: tuple[str, float] | None, calibrators: Calibrator | Mapping[str, Calibrator]
) -> Hit:
    provider, score = said or ("", hit.score)
    calibrator = calibrators.get(provider) if isinstance(calibrators, Mapping) else calibrators
    if calibrator is None or score is None:
        return hit
    return hit.with_metadata(probability=calibrator.probability(score))


def _probability(hit: Hit) -> float | None:
    value = hit.metadata.get("probability")
    return None if value is None else float(value)
