"""Use a scorer as a reranker of several lists: fuse them into one pool, then let the scorer order it."""

from __future__ import annotations

from collections.abc import Sequence

from resift.deadline import Deadline
from resift.errors import InputError
from resift.protocols import Scorer, display_name
from resift.ranking.fusion import rrf
from resift.rerankers.rescore import rescore
from resift.types import FusedHits, Hit, Scores
from resift.validation import check_query


class FusesThenScores:
    """Base of scorers that can also fuse lists. `fuse_timeout_s` limits the scoring; None means no limit."""

    name: str
    fuse_timeout_s: float | None = None

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one score per hit."""
        raise NotImplementedError

    async def fuse(
        self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None
    ) -> list[Hit]:
        """Fuse the lists by reciprocal rank and return the k with the best scores."""
        deadline = Deadline.after(self.fuse_timeout_s)
        return await fuse_then_rescore(self, per_store, k=k, query=query, deadline=deadline)


async def fuse_then_rescore(
    scorer: Scorer,
    per_store: Sequence[Sequence[Hit]],
    *,
    k: int,
    query: str | None,
    deadline: Deadline | None = None,
) -> FusedHits:
    """Fuse the lists by reciprocal rank, score every hit of the pool, return the best k.

    If the scorer fails, the fused order remains and the record has the reason.
    """
    name = display_name(scorer)
    if query is None or not check_query(query, allow_empty=True).strip():
        raise InputError(f"{name!r} scores hits against the query; pass it as query= to fuse.")
    ranking = await rescore(scorer, query, rrf(per_store), k=k, deadline=deadline)
    return FusedHits(ranking.hits, *ranking.trace)
