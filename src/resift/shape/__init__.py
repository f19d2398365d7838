"""Guard and shape: who comes out, after the reranker and before the final cut. Pure functions; no I/O.

Every stage is `stage(hits, ..., sink=None) -> Shaped`: `kept` in its new order, `cut` with the reason in each
ledger, `notes` about what had to be relaxed, `protected` ids that a later cut must spare. In this order:

1. blend(hits, *, policy=Blend(), near=None)              one score from reranker and first stage (H1)
2. precede(hits, *, policy=Precedence())                  near-equal scores follow the source order (S2)
3. guard(hits, *, n=10, policy=Guard())                   a strong first-stage hit stays in the top n (H2)
4. fold(hits, *, threshold=1.0)                           same text: one slot, all provenance
5. mmr(hits, *, k, trade_off=0.7, vectors=None)           relevance against novelty (S3)
6. recover(hits, *, k, policy=Recovery(), section=None)   protected hits, required types survive a cut (S1)
7. balance(hits, *, k, quotas=(...), protected=())        fairness and diversity by quota (S3)
8. the cut to k

shape(hits, *, k, policy=ShapePolicy(), section=None, vectors=None, near=None, sink=None) -> Shaped runs 1–8
in this order; a part of the policy that is None is skipped. `hits` is the whole reranked pool, unscored
included; `near` is what nearest(vectors) returns: which candidates are alike.
Calibration: Platt, Isotonic, Temperature (`fit`, `from_history`, `save`, `load_calibrator`),
calibrate(hits, calibrators) -> hits with metadata["probability"], above(hits, threshold) -> Shaped.
"""

from resift.shape.blending import Blend, blend
from resift.shape.calibration import (
    Calibrator,
    Isotonic,
    Platt,
    Temperature,
    calibrator_from,
    load_calibrator,
)
from resift.shape.composing import ShapePolicy, shape
from resift.shape.diversity import mmr
from resift.shape.folding import fold
from resift.shape.guarding import Guard, guard
from resift.shape.neighbours import nearest
from resift.shape.precedence import Precedence, precede
from resift.shape.probabilities import above, calibrate
from resift.shape.quotas import DIVERSITY, FAIRNESS, Quota, balance
from resift.shape.recovery import Recovery, recover
from resift.shape.shaped import ShapeApplied, Shaped

__all__ = [
    "DIVERSITY",
    "FAIRNESS",
    "Blend",
    "Calibrator",
    "Guard",
    "Isotonic",
    "Platt",
    "Precedence",
    "Quota",
    "Recovery",
    "ShapeApplied",
    "ShapePolicy",
    "Shaped",
    "Temperature",
    "above",
    "balance",
    "blend",
    "calibrate",
    "calibrator_from",
    "fold",
    "guard",
    "load_calibrator",
    "mmr",
    "nearest",
    "precede",
    "recover",
    "shape",
]
