"""Use a scorer as a reranker of several lists: fuse them into one pool, then let the scorer order it."""

from __future__ import annotations

from collections.abc import Sequence

from resift.deadline import Deadline
from resift.errors import InputError
from resift.protocols import Scorer, display_name
from resift.ranking.fusion import rrf
from resift.rerankers.rescore import rescore
from resift.types import FusedHits, Hit
from resift.validation import check_query


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
    if query is None or not check_query(query, allow_empty=True).strip():
        raise InputError(
            f"{display_name(scorer)!r} scores hits against the query; pass it as query= to fuse."
        )
    ranking = await rescore(scorer, query, rrf(per_store), k=k, deadline=deadline)
    return FusedHits(ranking.hits, *ranking.trace)
