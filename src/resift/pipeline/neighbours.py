"""Which candidates are alike: asked of the stores that keep vectors, before a stage that wants to know."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from resift.errors import redacted
from resift.pipeline.pool import Pool
from resift.pipeline.store_ref import StoreRef
from resift.pipeline.waiting import DeadlinePassed, run_until
from resift.protocols import VectorKeeper
from resift.ranking.shape import nearest
from resift.types import JsonMapping

log = logging.getLogger("resift.pipeline")

STAGE = "neighbours"

MOST = 200
"""How many of the pool are compared with one another; the work grows with the square."""


async def with_neighbours(refs: Sequence[StoreRef], pool: Pool) -> Pool:
    """Return the pool with what is near to what, where a store can tell; else as it is.

    A store that keeps vectors offers `async vectors_of(ids) -> Mapping[id, vector]`. Vectors of two stores
    may be of two embedders, so those of one are compared: of the store that knows most of the hits.
    """
    owners = {id(ref.owner): ref.owner for ref in refs}.values()
    # By attribute: checking the protocol takes longer, and every search does it.
    able: list[VectorKeeper] = [owner for owner in owners if hasattr(owner, "vectors_of")]
    if pool.near or not able or len(pool.hits) < 2 or pool.deadline.expired:
        return pool
    started = time.perf_counter()
    ids = [hit.id for hit in pool.hits[:MOST]]
    try:
        near = await run_until(pool.deadline, _asked(able, ids))
    except DeadlinePassed:
        return pool.degrade(f"{STAGE}: no vectors in time")
    except Exception as exc:
        log.warning("%s: no vectors: %s", STAGE, redacted(exc))
        return pool.degrade(f"{STAGE}: no vectors: {redacted(exc)}")
    return replace(pool, near=near).with_timing(STAGE, (time.perf_counter() - started) * 1000)


async def _asked(owners: Sequence[VectorKeeper], ids: Sequence[str]) -> JsonMapping:
    answers = [await owner.vectors_of(ids) for owner in owners]
    most = max(answers, key=len)  # the first declared where equal
    # A product of matrices would hold the event loop for milliseconds.
    return await asyncio.to_thread(nearest, most) if most else {}
