"""Query several stores at once: store references, the fan-out, and waiting with a deadline."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
import traceback
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from resift.deadline import Deadline
from resift.errors import InputError, ResiftError, RetrievalError, redact
from resift.events import Event, Sink, emit, is_observed
from resift.external.candidates import read_hits
from resift.protocols import DocStore, GraphStore, VectorStore, declared_name, display_name
from resift.stores.base import APPROXIMATE
from resift.stores.filters import matches, parse_filter
from resift.stores.graph.cypher_guard import check_cypher_for
from resift.types import RETRIEVAL_MODES, Hit, Languages, StageKind, StageRecord, Where, check_languages
from resift.validation import check_k, check_number, check_options, check_text, option

T = TypeVar("T")

LATE = "no answer in time"
"""The failure of a store that has no timeout of its own and did not respond before the deadline of the search."""

QUERY_PARAMETER = "query"  # the name of the Cypher parameter for the query: write `$query` in the statement

log = logging.getLogger("resift.pipeline")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverFetch:
    """Fetch `factor` × k candidates, at least `minimum` and at most `cap`, but never fewer than k."""

    factor: int = option("Multiple of k.", default=10, min=1)
    minimum: int = option("Minimum number of candidates.", default=0, min=0)
    cap: int | None = option("Maximum number of candidates.", default=None, min=1)

    def __post_init__(self) -> None:
        check_options(self)

    def __call__(self, k: int) -> int:
        """Return how many candidates to fetch for k hits."""
        count = max(self.minimum, k * self.factor)
        return max(k, count if self.cap is None else min(self.cap, count))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRef:
    """A store in a fan-out: its name, the store itself, and how to query it.

    A graph store needs `cypher`. The query is passed as the parameter `$query`, never as text in the
    statement. `k` and `timeout_s` override those of the fan-out for this store.
    """

    name: str = ""
    store: Any = None
    cypher: str | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    k: int | None = None
    timeout_s: float | None = None
    kind: str = ""

    @property
    def capability(self) -> str:
        """The capability required to read this store."""
        # A view of a store (docs.text) requires the capability of the store.
        owner_name = declared_name(self.owner) if self.owner is not self.store else ""
        return f"db.{owner_name or self.name}:read"

    @property
    def owner(self) -> Any:
        """The store behind a view (`stores.base.StoreView`), or the store itself."""
        # Reads the attribute, because isinstance with a protocol takes 57 to 87 µs and every search needs this.
        return getattr(self.store, "store", self.store)

    @property
    def provider(self) -> str:
        """The name of the engine in events."""
        owner = self.owner
        return str(getattr(owner, "provider", "") or type(owner).__name__)


Store = VectorStore | DocStore | GraphStore
Stores = Store | StoreRef | Iterable[Store | StoreRef]  # one or more stores, or references to stores


class ResolvedStore:
    """A store that is looked up by name for each query."""

    def __init__(self, name: str, resolve: Callable[[str], object]) -> None:
        self.name = name
        self.provider = ""
        self._resolve = resolve

    async def search(self, query: str, *, k: int, **filters: Where) -> Sequence[Hit]:
        """Search the store that the name currently resolves to."""
        rows: Sequence[Hit] = await (await self._look_up("search")).search(query, k=k, **filters)
        return rows

    async def query(self, cypher: str, parameters: Mapping[str, object] | None = None, *, k: int) -> Sequence[Hit]:
        """Query the graph store that the name currently resolves to."""
        rows: Sequence[Hit] = await (await self._look_up("query")).query(cypher, parameters, k=k)
        return rows

    async def _look_up(self, method: str) -> Any:
        store = self._resolve(self.name)
        store = await store if inspect.isawaitable(store) else store
        if not callable(getattr(store, method, None)):
            raise InputError(
                f"The resolver returned a {type(store).__name__} without `async {method}` for {self.name!r}."
            )
        self.provider = str(getattr(store, "provider", "") or type(store).__name__)
        return store


def store_refs(
    stores: Stores | str | Iterable[Store | StoreRef | str], *, resolve: Callable[[str], object] | None = None
) -> tuple[StoreRef, ...]:
    """Return one validated reference per store, in declared order.

    Accepts stores, StoreRefs, and names, which `resolve` looks up for each query. Names must be unique.
    """
    if isinstance(stores, (str, bytes)) or not isinstance(stores, Iterable):
        stores = [stores]
    refs = tuple([_store_ref(store, resolve) for store in stores])
    if not refs:
        raise InputError("No stores given; pass at least one.")
    names = [ref.name for ref in refs]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InputError(f"Two stores are named {repeated!r}. Give each its own name: StoreRef(name=…, store=…).")
    return refs


def _store_ref(store: object, resolve: Callable[[str], object] | None) -> StoreRef:
    if isinstance(store, StoreRef):
        ref = store
    else:
        ref = StoreRef(name=store) if isinstance(store, str) else StoreRef(store=store)
    check_text(ref.name, "The name of a store")
    if ref.store is None:
        if resolve is None:
            is_path = os.sep in ref.name or "." in ref.name
            remedy = f"open it: SQLiteStore({ref.name!r})" if is_path else "pass store_resolver= or StoreRef(store=…)"
            raise InputError(f"Store {ref.name!r} is only a name, not a store; {remedy}.")
        ref = replace(ref, store=ResolvedStore(ref.name, resolve))
    kind = ref.kind or ("graph" if ref.cypher is not None else getattr(ref.store, "kind", ""))
    if not isinstance(kind, str) or not kind:
        kind = {"text": "doc", "vector": "vector", "hybrid": "hybrid"}.get(getattr(ref.store, "mode", ""), "search")
    ref = replace(ref, name=ref.name or display_name(ref.store), kind=kind)
    if ref.k is not None:
        check_k(ref.k, name=f"Store {ref.name!r}: k", min=1)
    if ref.timeout_s is not None:
        check_number(ref.timeout_s, f"Store {ref.name!r}: timeout_s", gt=0)
    if ref.cypher is not None:
        check_text(ref.cypher, f"Store {ref.name!r}: cypher")
        check_cypher_for(ref.store, ref.cypher)
    method = "query" if ref.cypher is not None else "search"
    if not callable(getattr(ref.store, method, None)):
        type_name = type(ref.store).__name__
        if method == "search" and isinstance(ref.store, GraphStore):
            example = "StoreRef(store=…, cypher='MATCH … $query …')"
            raise InputError(f"Store {ref.name!r} ({type_name}) needs Cypher: {example}.")
        raise InputError(f"Store {ref.name!r} is a {type_name} without `async {method}`; see resift.protocols.")
    return ref


# The graph engine that listens for this event chose its name.
class Transition(Event, name="stargraph.transition"):
    """A store query ended: `status` is ok, failed or late; `timestamp` is UTC in ISO 8601 format."""

    kind: str
    store: str
    provider: str
    n_hits: int
    ms: float
    timestamp: str
    status: str = "ok"
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StoreResult:
    """The hits of a store with their record, or the reason why the store failed."""

    ref: StoreRef
    hits: tuple[Hit, ...] = ()
    failure: str | None = None
    record: StageRecord | None = None
    warning: str = ""


async def fan_out(
    refs: Sequence[StoreRef],
    query: str,
    *,
    k: int,
    where: Where | None = None,
    deadline: Deadline | None = None,
    last: Deadline | None = None,
    timeout_s: float | None = None,
    sink: Sink | None = None,
    lazy: bool = False,
) -> list[StoreResult]:
    """Query every store at the same time and return one result per store, in the order of `refs`.

    `lazy` lets stores load texts and metadata on first use. `timeout_s` applies to stores without their own timeout.
    A store that fails or times out does not affect the others. If no store has responded at the deadline, the first
    one may respond until `last`. Raises RetrievalError if all stores fail, unless all of them are late.
    """
    if where is not None:
        parse_filter(where)  # an invalid filter is the caller's mistake, not a failure of every store
    if last is not None and last.expired:
        # Under load, the deadline may pass before a search starts. Such a search must cost nothing.
        return [StoreResult(ref, failure=LATE) for ref in refs]
    until = deadline or Deadline.never()
    limits = [until.sooner(timeout_s if ref.timeout_s is None else ref.timeout_s) for ref in refs]
    started = time.perf_counter()
    tasks = [
        asyncio.ensure_future(_query_store(ref, query, k=ref.k or k, where=where, sink=sink, lazy=lazy)) for ref in refs
    ]
    results: list[StoreResult] = []
    try:
        for limit, task in zip(limits, tasks, strict=True):
            if not task.done():
                # Not wait_for, which waits for cancelled work to end, however long that takes.
                await asyncio.wait({task}, timeout=limit.timeout_s)
        if last is not None and not any(task.done() for task in tasks):
            unlimited = [task for task, limit in zip(tasks, limits, strict=True) if limit.at_s >= until.at_s]
            if unlimited:
                await asyncio.wait(unlimited, timeout=last.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for ref, limit, task in zip(refs, limits, tasks, strict=True):
            if task.done():
                results.append(task.result())
                continue
            store_s = timeout_s if ref.timeout_s is None else ref.timeout_s
            timed_out = store_s is not None and limit.at_s < until.at_s
            results.append(StoreResult(ref, failure=f"{LATE} (timeout_s={store_s:g})" if timed_out else LATE))
            _report(sink, ref, 0, started, status="late", error=TimeoutError.__name__)
    finally:
        for task in tasks:
            if not task.done():
                _abandon(task)
    failures = {result.ref.name: result.failure for result in results if result.failure}
    # If all stores are late, none of them failed: the caller gets the hits so far, which is an empty list.
    if refs and len(failures) == len(refs) and set(failures.values()) != {LATE}:
        raise RetrievalError(failures)
    return results


async def _query_store(
    ref: StoreRef, query: str, *, k: int, where: Where | None, sink: Sink | None, lazy: bool
) -> StoreResult:
    started = time.perf_counter()
    try:
        rows: Sequence[Hit]
        if ref.cypher is not None:
            # Stores in other packages may not check the statement themselves.
            check_cypher_for(ref.store, ref.cypher)
            rows = await ref.store.query(ref.cypher, {**ref.parameters, QUERY_PARAMETER: query}, k=k)
            if where is not None:  # the statement does not apply the filter
                rows = [row for row in rows if matches(row.metadata, where)]
        else:
            search = (getattr(ref.store, "search_lazy", None) if lazy else None) or ref.store.search
            # A store without filter support can still run searches without a filter.
            rows = await search(query, k=k, **({} if where is None else {"where": where}))
        notes: dict[str, str] = {}
        # A store may return more than k hits, or the same id twice, which fusion counts once and notes.
        if isinstance(rows, list) and not set(map(type, rows)) - {Hit}:  # the usual case
            hits = rows[:k]
        else:
            hits = read_hits(rows, source=ref.name, unique=False, flags=notes)[:k]
        if not {hit.source for hit in hits} <= {ref.name}:
            hits = [hit if hit.source == ref.name else replace(hit, source=ref.name) for hit in hits]
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return _report_failure(ref, ResiftError("cancelled itself"), started, sink)
    except Exception as exc:
        return _report_failure(ref, exc, started, sink)
    record = StageRecord(
        kind=StageKind.RETRIEVE,
        name="retrieve",
        ids=tuple([hit.id for hit in hits]),
        scores=tuple([hit.score for hit in hits]),
        source=ref.name,
        note=APPROXIMATE if getattr(rows, "approximate", False) is True else "",
        notes=notes,
        retrieval_mode=RETRIEVAL_MODES.get(ref.kind, ref.kind),
        languages=store_languages(ref),
    )
    if is_observed(sink):
        _report(sink, ref, len(hits), started)
    return StoreResult(ref, tuple(hits), record=record, warning=getattr(rows, "warning", ""))


def store_languages(ref: StoreRef) -> Languages | None:
    """Return the languages that the embedder of a vector store was trained on; None if it does not declare them."""
    if RETRIEVAL_MODES.get(ref.kind, ref.kind) != "dense":
        return None
    stores = (ref.store, getattr(ref.store, "store", None))  # a view, and the store behind it
    languages = [getattr(getattr(store, "embedder", None), "languages", None) for store in stores]
    declared = next((each for each in languages if each is not None), None)
    return declared if declared is None or type(declared) is tuple else check_languages(declared)


def _report_failure(ref: StoreRef, exc: Exception, started: float, sink: Sink | None) -> StoreResult:
    reason = f"{type(exc).__name__}: {exc}" if isinstance(exc, ResiftError) else redact(exc)
    log.warning("store %s failed: %s", ref.name, reason)
    if log.isEnabledFor(logging.DEBUG):
        # Log the frames without the message of the exception, which may quote a document.
        frames = "".join(traceback.format_tb(exc.__traceback__)).rstrip()
        log.debug("store %s failed at:\n%s", ref.name, frames)
    if is_observed(sink):
        _report(sink, ref, 0, started, status="failed", error=type(exc).__name__)
    return StoreResult(ref, failure=reason)


def _report(
    sink: Sink | None, ref: StoreRef, n_hits: int, started: float, *, status: str = "ok", error: str | None = None
) -> None:
    event = Transition(
        kind=ref.kind,
        store=ref.name,
        provider=ref.provider,
        n_hits=n_hits,
        ms=(time.perf_counter() - started) * 1000,
        timestamp=datetime.now(UTC).isoformat(),
        status=status,
        error=error,
    )
    emit(sink, event)


class DeadlinePassed(TimeoutError):
    """The deadline passed before the work finished. Internal to the pipeline."""


async def run_until(deadline: Deadline, work: Coroutine[object, object, T]) -> T:
    """Await the work; at the deadline, abandon it and raise DeadlinePassed.

    Raises ResiftError if the work cancels itself. Work that ignores cancellation, or waits for a thread that
    cannot be stopped, does not block the caller. Work that never suspends runs to its end.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=deadline.timeout_s)
    except asyncio.CancelledError:
        _abandon(task)
        raise
    if not task.done():
        _abandon(task)
        raise DeadlinePassed
    if task.cancelled():
        raise ResiftError("cancelled itself")
    return task.result()


def _abandon(task: asyncio.Future[T]) -> None:
    # Reading the exception keeps asyncio from logging that it was never retrieved.
    task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    task.cancel()
