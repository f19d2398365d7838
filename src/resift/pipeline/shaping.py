"""Guard and shape as one stage: what the guard protects, a later cut must know."""

from __future__ import annotations

from collections.abc import Mapping

from resift._internal.arrays import Vector
from resift.pipeline.pool import Pool
from resift.ranking.shape import ShapePolicy, shape
from resift.types import StageKind


class Shape:
    """Blends, guards, folds, diversifies and recovers by one policy, then cuts to k.

    Without a policy: blend and guard, the defaults of `resift.ranking.shape`. `section` is used where a
    search names none; `vectors` (id -> vector) lets diversity compare meaning instead of words.
    """

    kind = StageKind.SHAPE

    def __init__(
        self,
        policy: ShapePolicy | None = None,
        *,
        section: str | None = None,
        vectors: Mapping[str, Vector] | None = None,
        name: str = "shape",
    ) -> None:
        self.policy = policy or ShapePolicy()
        self.section = section
        self.vectors = vectors
        self.name = name

    @property
    def asks_neighbours(self) -> bool:
        """Whether the blend wants to know which hits are alike."""
        return self.policy.blend is not None and self.policy.blend.asks_neighbours

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool's best k; what had to be relaxed is in `notes`."""
        if not pool.hits:  # a record of nothing would only blur the trace
            return pool
        shaped = shape(
            pool.hits,
            k=pool.k,
            trace=pool.trace,
            policy=self.policy,
            section=pool.section or self.section,
            vectors=self.vectors or pool.vectors,
            near=pool.near,
            sink=pool.sink,
        )
        done = pool.reorder(shaped.kept, *shaped.records, cut=shaped.cut)
        return done.with_notes(relaxed=shaped.notes) if shaped.notes else done
