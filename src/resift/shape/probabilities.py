"""Rankings that carry probabilities, and one threshold for all providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from resift.errors import InputError
from resift.events import Sink
from resift.shape.calibration import Calibrator
from resift.shape.evidence import rerank_step
from resift.shape.shaped import Shaped, told
from resift.types import CUT, Hit, placed

STAGE = "threshold"


def calibrate(hits: Sequence[Hit], calibrators: Calibrator | Mapping[str, Calibrator]) -> tuple[Hit, ...]:
    """Return the hits with metadata["probability"], each by the calibrator of the provider that scored it.

    The provider's own score is taken from the ledger, so that blending before does not matter; hits that no
    provider scored are judged by their score under the name "". Hits without a calibrator stay as they are.
    """
    return tuple(_calibrated(hit, calibrators) for hit in hits)


def above(hits: Sequence[Hit], threshold: float, *, sink: Sink | None = None) -> Shaped:
    """Keep the hits whose probability reaches the threshold; those without one are kept and told in notes."""
    if not 0 <= threshold <= 1:
        raise InputError(f"threshold is {threshold}; a probability lies between 0 and 1.")
    kept = [hit for hit in hits if _probability(hit) is None or float(_probability(hit) or 0.0) >= threshold]
    stays = {hit.id for hit in kept}
    cut = tuple(
        hit.step(
            CUT, STAGE, rank=rank, score=None, note=f"probability {_probability(hit):.3g} < {threshold:.3g}"
        )
        for rank, hit in enumerate(hits, start=1)
        if hit.id not in stays
    )
    unknown = sum(_probability(hit) is None for hit in kept)
    notes = (f"{unknown} hits have no probability and were kept",) if unknown else ()
    return told(STAGE, hits, Shaped(placed(kept, STAGE), cut, notes), sink)


def _calibrated(hit: Hit, calibrators: Calibrator | Mapping[str, Calibrator]) -> Hit:
    step = rerank_step(hit)
    score, provider = (hit.score, "") if step is None or step.score is None else (step.score, step.source)
    calibrator = calibrators.get(provider) if isinstance(calibrators, Mapping) else calibrators
    return hit if calibrator is None else hit.with_metadata(probability=calibrator.probability(score))


def _probability(hit: Hit) -> float | None:
    value = hit.metadata.get("probability")
    return None if value is None else float(value)
