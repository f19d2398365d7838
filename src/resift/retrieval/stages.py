"""The stages that come with retrieval: fusing lists, rescoring the top, and any function on hits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from resift.candidates import MissingText
from resift.errors import InputError
from resift.fusion.rerankers import RRFReranker
from resift.protocols import Reranker, Scorer, name_of, needs_of, own_name
from resift.rerankers.rescore import rescore
from resift.retrieval.pool import Pool
from resift.types import Fused, Hit, JsonObject, StageKind, StageRecord, Trace, record_of, rescored


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

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool with fused hits; hits of equal score stand by id."""
        per_store = [list(hits) for hits in pool.lists.values()]
        every = sum(len(hits) for hits in per_store)
        reranker = self._chosen(pool)
        # A reranker of the plain form `fuse(per_store, *, k)` is told nothing else.
        known: JsonObject = {"query": pool.query, "searched": _searched(pool)}
        asked = {name: value for name, value in known.items() if _takes(type(reranker), name)}
        answer: Any = reranker.fuse(per_store, k=every if self.keep is None else self.keep, **asked)
        fused = await answer if inspect.isawaitable(answer) else answer
        records = fused.records if isinstance(fused, Fused) else (_plain_record(reranker, fused),)
        return pool.reorder(fused, *records)

    def _chosen(self, pool: Pool) -> Reranker:
        if self.reranker is not None:
            return self.reranker
        # Declared order, also for stores that gave nothing: it decides whose text and metadata stay.
        names = list(pool.lists)
        return self.make(names) if self.make else RRFReranker(sources=names, sink=pool.sink)


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
        rest = pool.hits[len(top) :]
        ranking = await rescore(
            self.scorer,
            pool.query,
            top,
            k=len(top),
            # Only this stage's record is wanted; the pool has the others.
            trace=Trace(),
            deadline=pool.deadline,
            missing_text=self.missing_text,
            stage=self.name,
            sink=pool.sink,
        )
        judged = any(score is not None for score in ranking.trace[0].scores)
        # Below a judged hit no other score may stand that compares above it.
        behind = rescored(rest, (None,) * len(rest)) if judged else list(rest)
        # Only within k: nobody expected a score of what lies deeper.
        unjudged = [hit.id for hit in rest[: max(0, pool.k - len(top))]]
        done = pool.reorder([*ranking.hits, *behind], self._record(ranking.trace[0], rest))
        done = replace(done, tier=ranking.tier, unscored=(*ranking.unscored, *unjudged))
        return done.degrade(ranking.reason or self.name) if ranking.degraded else done

    def _record(self, top: StageRecord, rest: Sequence[Hit]) -> StageRecord:
        note = f"below the top {len(top.ids)}, not reranked"
        return replace(
            top,
            ids=(*top.ids, *(hit.id for hit in rest)),
            scores=(*top.scores, *(None for _ in rest)),
            notes={**top.notes, **{hit.id: note for hit in rest}},
        )


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
