"""Guard and shape: who comes out, after the reranker and before the final cut. Pure functions; no I/O.

Every stage is `stage(hits, ..., sink=None) -> Shaped`: `kept` in its new order, `cut` with the reason in each
ledger, `notes` about what had to be relaxed, `protected` ids that a later cut must spare. In this order:

1. blend(hits, *, policy=Blend(), near=None)              one score from reranker and first stage
2. precede(hits, *, policy=Precedence())                  near-equal scores follow the source order
3. guard(hits, *, n=10, policy=Guard())                   a strong first-stage hit stays in the top n
4. fold(hits, *, threshold=1.0)                           same text: one slot, all provenance
5. mmr(hits, *, k, trade_off=0.7, vectors=None)           relevance against novelty
6. recover(hits, *, k, policy=Recovery(), section=None)   protected hits, required types survive a cut
7. balance(hits, *, k, quotas=(...), protected=())        fairness and diversity by quota
8. the cut to k

shape(hits, *, k, policy=ShapePolicy(), section=None, vectors=None, near=None, sink=None) -> Shaped runs 1–8
in this order; a part of the policy that is None is skipped. `hits` is the whole reranked pool, unscored
included; `near` is what nearest(vectors) returns: which candidates are alike.
Calibration: Platt, Isotonic, Temperature (`fit`, `from_history`, `save`, `load_calibrator`),
calibrate(hits, calibrators) -> hits with metadata["probability"], above(hits, threshold) -> Shaped.
"""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.ranking.shape.blending import Blend as Blend
    from resift.ranking.shape.blending import blend as blend
    from resift.ranking.shape.calibration import Calibrator as Calibrator
    from resift.ranking.shape.calibration import Isotonic as Isotonic
    from resift.ranking.shape.calibration import Platt as Platt
    from resift.ranking.shape.calibration import Temperature as Temperature
    from resift.ranking.shape.calibration import calibrator_from as calibrator_from
    from resift.ranking.shape.calibration import load_calibrator as load_calibrator
    from resift.ranking.shape.composing import ShapePolicy as ShapePolicy
    from resift.ranking.shape.composing import shape as shape
    from resift.ranking.shape.diversity import mmr as mmr
    from resift.ranking.shape.folding import fold as fold
    from resift.ranking.shape.guarding import Guard as Guard
    from resift.ranking.shape.guarding import guard as guard
    from resift.ranking.shape.neighbours import nearest as nearest
    from resift.ranking.shape.precedence import Precedence as Precedence
    from resift.ranking.shape.precedence import precede as precede
    from resift.ranking.shape.probabilities import above as above
    from resift.ranking.shape.probabilities import calibrate as calibrate
    from resift.ranking.shape.quotas import DIVERSITY as DIVERSITY
    from resift.ranking.shape.quotas import FAIRNESS as FAIRNESS
    from resift.ranking.shape.quotas import Quota as Quota
    from resift.ranking.shape.quotas import balance as balance
    from resift.ranking.shape.recovery import Recovery as Recovery
    from resift.ranking.shape.recovery import recover as recover
    from resift.ranking.shape.shaped import ShapeApplied as ShapeApplied
    from resift.ranking.shape.shaped import Shaped as Shaped
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        blending: Blend blend
        calibration: Calibrator Isotonic Platt Temperature calibrator_from load_calibrator
        composing: ShapePolicy shape
        diversity: mmr
        folding: fold
        guarding: Guard guard
        neighbours: nearest
        precedence: Precedence precede
        probabilities: above calibrate
        quotas: DIVERSITY FAIRNESS Quota balance
        recovery: Recovery recover
        shaped: ShapeApplied Shaped
        """,
    )
