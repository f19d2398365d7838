"""One question to many stores at once: each on its own time, answers in the order declared."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from resift.deadline import Deadline
from resift.errors import ResiftError, RetrievalError, redacted
from resift.events import Event, Sink, emit
from resift.external.candidates import hits_from
from resift.pipeline.store_ref import StoreRef
from resift.pipeline.waiting import DeadlinePassed, run_until
from resift.stores.base import APPROXIMATE, is_approximate
from resift.stores.filters import conditions
from resift.types import Hit, StageKind, StageRecord, Where, record_of

LATE = "no answer in time"
"""The failure of a store that had no time of its own and outlasted that of the search."""

log = logging.getLogger("resift.pipeline")


# The name belongs to the graph engine that listens for it.
class Transition(Event, name="stargraph.transition"):
    """One branch of a fan-out ended: `status` is ok, failed or late; `timestamp` is UTC in ISO 8601."""

    kind: str
    store: str
    provider: str
    n_hits: int
    ms: float
    timestamp: str
    status: str = "ok"
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """What one store gave: its hits, or why there are none; `flags` say what was odd about single hits.

    `approximate`: an index found them that may have passed over better ones.
    """

    ref: StoreRef
    hits: tuple[Hit, ...] = ()
    failure: str | None = None
    flags: Mapping[str, str] = field(default_factory=dict)
    approximate: bool = False

    def record(self) -> StageRecord:
        """Return the record of this store's list."""
        record = record_of(
            StageKind.RETRIEVE,
            "retrieve",
            self.hits,
            scored=True,
            source=self.ref.name,
            note=APPROXIMATE if self.approximate else "",
            notes=self.flags,
        )
        return replace(record, searched=self.ref.kind)


async def fan_out(
    refs: Sequence[StoreRef],
    query: str,
    *,
    k: int,
    where: Where | None = None,
    deadline: Deadline | None = None,
    timeout_s: float | None = None,
    sink: Sink | None = None,
    lazy: bool = False,
) -> list[Branch]:
    """Ask every store at the same time and return one branch per store, in the order of `refs`.

    `lazy` lets stores that can do so load texts and metadata when they are first used.
    `timeout_s` is for stores without one of their own. A store that raises or is late costs only itself.
    Raises RetrievalError when every store failed.
    """
    conditions(where)  # a mistake in the filter is the caller's, not a failure of every store
    until = deadline or Deadline.never()
    # A branch keeps its store's failure, so the group ends early only when the caller is cancelled.
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                _branch(
                    replace(ref, timeout_s=timeout_s if ref.timeout_s is None else ref.timeout_s),
                    query,
                    k=k,
                    where=where,
                    deadline=until,
                    sink=sink,
                    lazy=lazy,
                )
            )
            for ref in refs
        ]
    branches = [task.result() for task in tasks]
    if refs and all(branch.failure for branch in branches):
        raise RetrievalError(failures_of(branches))
    return branches


def failures_of(branches: Sequence[Branch]) -> dict[str, str]:
    """Return store name -> what went wrong, for the branches that failed."""
    return {branch.ref.name: branch.failure for branch in branches if branch.failure}


async def _branch(
    ref: StoreRef,
    query: str,
    *,
    k: int,
    where: Where | None,
    deadline: Deadline,
    sink: Sink | None,
    lazy: bool,
) -> Branch:
    started = time.perf_counter()
    limit = deadline.sooner(ref.timeout_s)
    asked = ref.k or k
    status, error = "ok", None
    branch = Branch(ref)
    try:
        rows = await run_until(limit, ref.ask(query, k=asked, where=where, lazy=lazy))
        branch = _from_store(ref, rows, asked)
    except DeadlinePassed:
        status, error = "late", TimeoutError.__name__
        # Which of the two limits it was: the store's own, or what the whole search had left.
        own = ref.timeout_s is not None and limit.at_s < deadline.at_s
        branch = Branch(ref, failure=f"{LATE} (timeout_s={ref.timeout_s:g})" if own else LATE)
    except Exception as exc:
        status, error = "failed", type(exc).__name__
        branch = Branch(ref, failure=_reason(exc))
        _log_failure(ref.name, exc)
    ms = (time.perf_counter() - started) * 1000
    emit(
        sink,
        Transition(
            kind=ref.kind,
            store=ref.name,
            provider=ref.provider,
            n_hits=len(branch.hits),
            ms=ms,
            timestamp=datetime.now(UTC).isoformat(),
            status=status,
            error=error,
        ),
    )
    return branch


def _from_store(ref: StoreRef, rows: Any, k: int) -> Branch:
    flags: dict[str, str] = {}
    # Some stores give more than was asked for, or an id twice: fusion counts that once and says so.
    hits = hits_from(rows, source=ref.name, unique=False, flags=flags)[:k]
    if not {hit.source for hit in hits} <= {ref.name}:
        # A store that knows itself by another name goes by the name it has here.
        hits = [hit if hit.source == ref.name else replace(hit, source=ref.name) for hit in hits]
    return Branch(ref, tuple(hits), flags=flags, approximate=is_approximate(rows))


def _reason(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}" if isinstance(exc, ResiftError) else redacted(exc)


def _log_failure(store: str, exc: Exception) -> None:
    log.warning("store %s failed: %s", store, _reason(exc))
    if log.isEnabledFor(logging.DEBUG):
        # Frames without the exception's own message, which may quote a document.
        log.debug("store %s failed at:\n%s", store, "".join(traceback.format_tb(exc.__traceback__)).rstrip())
