"""The stages that come with retrieval: fusing lists, rescoring the top, and any function on hits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from resift.errors import InputError
from resift.external.candidates import MissingText
from resift.pipeline.pool import Pool
from resift.protocols import Reranker, Scorer, name_of, needs_of, own_name
from resift.ranking.adaptive_weights import CODE_DENSITY, Trust, reading_depth
from resift.ranking.fusion.rerankers import RRFReranker
from resift.rerankers.rescore import rerank_hits
from resift.types import Fused, Hit, JsonObject, StageKind, StageRecord, record_of
from resift.types.hit import load_hits


class Fuse:
    """Make one list of the first-stage lists, by RRF unless told otherwise.

    Takes a reranker, or `make`, which builds one from the store names in declared order. `keep` is how
    many hits the reranker is asked for; None asks for all, so that later stages choose from all.
    """

    name = "fuse"
    kind = StageKind.FUSE

    def __init__(
        self,
        reranker: Reranker | None = None,
        *,
        make: Callable[[Sequence[str]], Reranker] | None = None,
        keep: int | None = None,
    ) -> None:
        self.reranker = reranker
        self.make = make
        self.keep = keep
        self.requires = needs_of(reranker)
        self._made: tuple[object, Reranker] | None = None  # the last one, with the names it was made for

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool with fused hits; hits of equal score are ordered by id."""
        per_store = [list(hits) for hits in pool.lists.values()]
        every = sum(len(hits) for hits in per_store)
        reranker = self.reranker_for(pool)
        # A reranker of the plain form `fuse(per_store, *, k)` is told nothing else.
        known: JsonObject = {"query": pool.query, "searched": _searched(pool)}
        arguments = {name: value for name, value in known.items() if _takes(type(reranker), name)}
        answer: Any = reranker.fuse(per_store, k=every if self.keep is None else self.keep, **arguments)
        fused = await answer if inspect.isawaitable(answer) else answer
        records = fused.records if isinstance(fused, Fused) else (_plain_record(reranker, fused),)
        return pool.reorder(fused, *records)

    def reranker_for(self, pool: Pool) -> Reranker:
        """Return the reranker for the stores of this pool."""
        if self.reranker is not None:
            return self.reranker
        # Declared order, even for stores that found nothing: it decides whose text and metadata stay.
        names = tuple(pool.lists)
        if self._made is None or self._made[0] != (names, pool.sink):
            made = self.make(names) if self.make else RRFReranker(sources=list(names), sink=pool.sink)
            self._made = (names, pool.sink), made
        return self._made[1]


def _searched(pool: Pool) -> list[str]:
    """Return how each store looked for its list, in the order of the lists."""
    kinds = {record.source: record.searched for record in pool.trace.of(StageKind.RETRIEVE)}
    return [kinds.get(name, "") for name in pool.lists]


# Kept by type: reading a signature takes longer than fusing, and every search asks.
@lru_cache(maxsize=64)
def _takes(kind: type[Reranker], name: str) -> bool:
    parameters = inspect.signature(kind.fuse).parameters.values()
    return any(one.name == name or (one.kind is one.VAR_KEYWORD and name == "query") for one in parameters)


def _plain_record(reranker: Reranker, hits: Sequence[Hit]) -> StageRecord:
    return record_of(StageKind.FUSE, own_name(reranker) or "fuse", hits, scored=True)


Depth = Callable[[Pool], int]
"""How many of a pool's hits are worth reading."""

NOT_READ = "not reranked: its texts are none that the reranker was made for"


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


class Rerank:
    """Let a scorer put the best `depth` hits into its own order; the others keep theirs, behind.

    `depth` is a number, None for all, or a function from the pool to a number (`AdaptiveDepth`): 0 leaves
    the pool as it is.
    """

    kind = StageKind.RERANK

    def __init__(
        self,
        scorer: Scorer,
        *,
        depth: int | Depth | None = 20,
        missing_text: MissingText = "last",
        name: str = "rerank",
    ) -> None:
        if isinstance(depth, int) and depth < 1:
            raise InputError(f"depth is {depth}; rerank at least 1 hit, or pass None for all.")
        self.scorer = scorer
        self.depth = depth
        self.missing_text = missing_text
        self.name = name
        self.requires = needs_of(scorer)

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool reranked; without time left it stays as it is and says so."""
        if not pool.hits:
            return pool
        if pool.deadline.expired:
            return pool.degrade(f"{self.name}: no time left for {name_of(self.scorer)}")
        depth = self.depth(pool) if callable(self.depth) else self.depth
        if depth == 0:
            return pool.recorded(record_of(self.kind, self.name, pool.hits, note=NOT_READ))
        top = pool.hits if depth is None else pool.hits[:depth]
        load_hits(top)  # here, so that a damaged document is no failure of the scorer
        result = await rerank_hits(
            self.scorer,
            pool.query,
            top,
            pool.hits[len(top) :],
            deadline=pool.deadline,
            missing_text=self.missing_text,
            stage=self.name,
            sink=pool.sink,
        )
        # Only within k: nobody expected a score of hits that are deeper.
        unscored = (*result.unscored, *[hit.id for hit in pool.hits[len(top) : pool.k]])
        done = pool.reorder(result.hits, result.record, tier=result.provider, unscored=unscored)
        return done.degrade(result.reason or self.name) if result.degraded else done


@dataclass(frozen=True, slots=True)
class OnHits:
    """Turn a function on hits, sync or async, into a stage: what it leaves out is cut in its name."""

    name: str
    function: Callable[[Sequence[Hit]], Any]
    requires: tuple[str, ...] = ()

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool with the hits that the function returned."""
        # With the trace at hand, so that functions which look evidence up find it.
        hits = self.function(Fused(pool.hits, *pool.trace))
        return pool.reorder(await hits if inspect.isawaitable(hits) else hits)
