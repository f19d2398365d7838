"""How deep a reranker reads: as far as the first stage's scores say that it pays."""

from __future__ import annotations

from dataclasses import dataclass, field

from resift.retrieval.pool import Pool
from resift.trust import CODE_DENSITY, Trust, reading_depth
from resift.types import StageKind


@dataclass(frozen=True, slots=True)
class AdaptiveDepth:
    """A depth for `Rerank` that follows the fused scores.

    Only weighted fusion gives scores on a scale that tells; of any other fused list the best `otherwise`
    are read.
    """

    trust: Trust = field(default_factory=Trust)
    otherwise: int = 20

    def __call__(self, pool: Pool) -> int:
        """Return how many of this pool's hits are worth reading."""
        fused = pool.trace.of(StageKind.FUSE)
        scores = [hit.score for hit in pool.hits if hit.score is not None]
        # Only weighted fusion records weights; without them, or with unjudged hits, there is no scale.
        if not fused or not fused[-1].weights or len(scores) < len(pool.hits):
            return self.otherwise
        return reading_depth(scores, self.trust, marks=fused[-1].evidence.get(CODE_DENSITY, 0.0))
