"""Rankings that carry probabilities, and one threshold for all providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from resift.arguments import checked
from resift.errors import InputError
from resift.events import Sink
from resift.shape.calibration import Calibrator
from resift.shape.evidence import evidence
from resift.shape.shaped import Shaped, shaped
from resift.types import Hit, Ranking, StageKind, Trace, record_of, trace_of
from resift.validation import check_number

STAGE = "threshold"


@checked
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


@checked
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


def at_least(ranking: Ranking, score: float) -> Ranking:
    """Leave out the hits whose score is lower, in `cut` and with the reason; those without a score stay."""
    least = check_number(score, "min_score")
    under = {hit.id for hit in ranking if hit.score is not None and hit.score < least}
    if not under:
        return ranking
    kept = tuple(hit for hit in ranking if hit.id not in under)
    cut = tuple(hit for hit in ranking if hit.id in under)
    notes = {hit.id: f"score {hit.score:.3g} < {least:.3g}" for hit in cut}
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
