"""From a question to one ranked list: fan-out, fuse, gate, rerank, guard, shape; every stage optional."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

from resift._internal.sync import synced
from resift.deadline import Clock, Deadline
from resift.errors import CapabilityError, InputError, redacted
from resift.events import Sink, ambient_sink
from resift.pipeline.fan_out import failures_of, fan_out
from resift.pipeline.gating import Gate, closed
from resift.pipeline.neighbours import with_neighbours
from resift.pipeline.over_fetch import OverFetch
from resift.pipeline.pool import AsksNeighbours, Pool, Stage, validate_stage_output
from resift.pipeline.shaping import Shape
from resift.pipeline.stages import Fuse, Rerank
from resift.pipeline.store_ref import Store, StoreRef, Stores, store_refs
from resift.pipeline.waiting import DeadlinePassed, run_until
from resift.protocols import Reranker, Scorer, ScoringStage, name_of, needs_of
from resift.ranking.fusion.rerankers import is_built_in_fusion
from resift.stores.base import CorruptDocumentError as DamagedDocument
from resift.stores.filters import conditions, single_conditions
from resift.types import JsonMapping, Ranking, StageKind, Where, cut_record
from resift.types.hit import load_hits
from resift.validation import (
    DEFAULT_K,
    check_arguments,
    check_callable,
    check_k,
    check_list,
    check_mapping,
    check_query,
    check_seconds,
    check_text,
)

log = logging.getLogger("resift.pipeline")

FETCH = OverFetch(factor=10, minimum=100, cap=1000)
"""How much each store is asked for, unless told otherwise: 100 for k=10. Deeper lists steady the blend."""

TIMEOUT_S = 30.0
"""How long a store is waited for where neither it nor the search has a limit: nothing hangs for ever."""

FAN_OUT_SHARE = 0.6
"""The part of a deadline that stores may use when later stages need time too."""

MARGIN_S, MARGIN_SHARE = 0.05, 0.1
"""What is kept back of a deadline so that the answer is out before it: 50 ms, or 10 % if that is less."""

STOP_S, STOP_SHARE = 0.02, 0.05
"""How much earlier a stage is told to stop than it is left behind: 20 ms, or 5 % if that is less."""

Stages = Stage | Iterable[Stage] | None


class PipelineParts(TypedDict, total=False):
    """The arguments of `Pipeline` that stand beside its stores and its reranker."""

    fuse: Reranker | Stage | None
    gate: Stages
    guard: Stages
    shape: Stages
    k: int
    fetch: OverFetch
    deadline_s: float | None
    timeout_s: float | None
    capabilities: Collection[str] | None
    sink: Sink | None
    clock: Clock


class PipelineOptions(PipelineParts, total=False):
    """The arguments of `Pipeline` that win over a file."""

    rerank: Scorer | Stages


class Pipeline:
    """Asks stores and passes what they found through stages.

    `rerank` takes a scorer (its top 20 are reranked) or a stage; `gate`, `guard` and `shape` take one
    stage or several. One deadline, one event sink and one set of capabilities hold for all. `timeout_s` is
    the longest wait for a store that has no limit of its own.
    """

    def __init__(
        self,
        stores: Stores,
        *,
        fuse: Reranker | Stage | None = None,
        gate: Stages = None,
        rerank: Scorer | Stages = None,
        guard: Stages = None,
        shape: Stages = None,
        k: int = DEFAULT_K,
        fetch: OverFetch = FETCH,
        deadline_s: float | None = None,
        timeout_s: float | None = TIMEOUT_S,
        capabilities: Collection[str] | None = None,
        sink: Sink | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.stores = store_refs(stores)
        slots: list[tuple[StageKind, list[Stage]]] = [
            (StageKind.FUSE, [_fuse_stage(fuse)]),
            (StageKind.GATE, _listed(gate)),
            (StageKind.RERANK, _rerank_stages(rerank)),
            (StageKind.GUARD, _listed(guard)),
            (StageKind.SHAPE, _listed(shape)),
        ]
        self.stages = tuple(stage for _, stages in slots for stage in stages)
        # What a stage does is what it says, else what it was passed as; never what it is called.
        self._kinds = tuple(getattr(stage, "kind", kind) for kind, stages in slots for stage in stages)
        # Asked once, and not in every search: a protocol takes its time.
        self._ask_neighbours = [
            stage for stage in self.stages if isinstance(stage, AsksNeighbours) and stage.asks_neighbours
        ]
        # Behind a reranker the scores are its own; only a gate before it can meet a wrong scale.
        for kind, stage in zip(self._kinds, self.stages, strict=True):
            if kind is StageKind.RERANK:
                break
            if isinstance(stage, Gate):
                stage.check_scale(self.stores)
        # The first one: it is what a gate before it leaves fewer hits to.
        scorers = [stage.scorer for stage in self.stages if isinstance(stage, Rerank)]
        self._breaker_closed = closed(scorers[0]) if scorers else None
        check_k(k)
        # Wrong ones are refused now, not at the first search.
        check_seconds(deadline_s)
        check_seconds(timeout_s, "timeout_s")
        check_callable(fetch, "fetch", "an OverFetch")
        if sink is not None:
            check_callable(sink, "sink", "a function that takes an event")
        check_callable(clock, "clock", "a monotonic clock such as time.monotonic")
        if capabilities is not None:
            check_list(capabilities, "capabilities", "names such as db.docs:read")
        self.k = k
        self.fetch = fetch
        self.deadline_s = deadline_s
        self.timeout_s = timeout_s
        self.capabilities = capabilities
        self.sink = sink
        self.clock = clock

    @property
    def requires(self) -> tuple[str, ...]:
        """Every capability that a search needs: stores first, then stages."""
        names = [ref.capability for ref in self.stores]
        for stage in self.stages:
            names.extend(needs_of(stage))
        return tuple(dict.fromkeys(names))

    async def search(
        self,
        query: str,
        *,
        k: int | None = None,
        deadline_s: float | None = None,
        where: Where | None = None,
        section: str | None = None,
        capabilities: Collection[str] | None = None,
    ) -> Ranking:
        """Return the best k hits, within the deadline, saying what failed or was skipped.

        Raises CapabilityError before any I/O, InputError for a wrong argument, RetrievalError when
        every store failed.
        """
        wanted = self.k if k is None else k
        check_k(wanted)
        check_query(query)
        check_mapping(where, "where")
        if section is not None:
            check_text(section, "section")
        for granted in (self.capabilities, capabilities):
            if granted is not None:
                missing = [name for name in self.requires if name not in granted]
                if missing:
                    raise CapabilityError(missing)
        seconds = self.deadline_s if deadline_s is None else deadline_s
        deadline = Deadline.after(seconds, clock=self.clock)
        pool = Pool(
            query=query,
            k=wanted,
            where=where,
            section=section,
            deadline=_earlier(deadline, seconds, MARGIN_S, MARGIN_SHARE),
            sink=self.sink,
            breaker_closed=self._breaker_closed,
        )
        # Checked like any other search, but no store is asked for nothing.
        if wanted == 0:
            return pool.ranking()
        started = time.perf_counter()
        with ambient_sink(self.sink):
            try:
                done = finish(await self._run_stages(pool, seconds, lazy=True))
                load_hits(done.hits)
            except DamagedDocument:
                # Again with every document verified: the store fails as a whole, and the ranking names it.
                done = finish(await self._run_stages(pool, seconds, lazy=False))
        return done.with_timing("total", (time.perf_counter() - started) * 1000).ranking()

    rank = synced(search, "rank")

    async def _run_stages(self, pool: Pool, seconds: float | None, *, lazy: bool) -> Pool:
        pool = await self._first_stage(pool, seconds, lazy=lazy)
        for kind, stage in zip(self._kinds, self.stages, strict=True):
            if stage in self._ask_neighbours:
                pool = await with_neighbours(self.stores, pool)
            pool = await _run_stage(stage, pool, kind)
        return pool

    async def close(self) -> None:
        """Close the stores and scorers that can be closed."""
        asked = (stage.scorer if isinstance(stage, ScoringStage) else stage for stage in self.stages)
        parts = [*(ref.owner for ref in self.stores), *asked]
        # By identity: a store with two views, or a scorer of two stages, is closed once.
        for part in {id(part): part for part in parts}.values():
            await _closed(part)

    @classmethod
    @check_arguments
    def default(cls, store: Store, *, rerank: bool = True, **options: Unpack[PipelineParts]) -> Pipeline:
        """Return a sensible pipeline for one store: words and meaning fused, the top 20 reranked, blended."""
        from resift.pipeline.defaults import default_options

        return cls(**{**default_options(store, rerank=rerank), **options})

    @classmethod
    def from_yaml(cls, path: str | Path, **options: Unpack[PipelineOptions]) -> Pipeline:
        """Return the pipeline that a file describes; raises ConfigError with file and line."""
        # Config builds pipelines and stands above them; the class only lends it a door.
        from resift.config import pipeline_from_yaml

        return pipeline_from_yaml(path, **options)

    @classmethod
    def from_config(cls, config: JsonMapping, **options: Unpack[PipelineOptions]) -> Pipeline:
        """Return the pipeline that a dict describes, with the same keys as the file."""
        from resift.config import pipeline_from_config

        return pipeline_from_config(config, **options)

    async def _first_stage(self, pool: Pool, seconds: float | None, *, lazy: bool) -> Pool:
        started = time.perf_counter()
        last_moment = pool.deadline
        # Fusing alone takes next to no time; only stages behind it need a share of the time.
        if seconds is not None and len(self.stages) > 1:
            last_moment = last_moment.sooner(seconds * FAN_OUT_SHARE)
        branches = await fan_out(
            self.stores,
            pool.query,
            k=self.fetch(pool.k),
            where=pool.where,
            deadline=last_moment,
            timeout_s=self.timeout_s,
            sink=pool.sink,
            lazy=lazy,
        )
        failures = failures_of(branches)
        lists = {branch.ref.name: branch.hits for branch in branches}
        # A store that failed has no list; one that found nothing has an empty one.
        records = [branch.record() for branch in branches if not branch.failure]
        pool = replace(pool, lists=lists, failures=failures).recorded(*records)
        if failures:
            pool = pool.degrade(f"{len(failures)} of {len(branches)} stores failed: {', '.join(failures)}")
        if pool.where and not failures:
            pool = replace(pool, warnings=await _filter_warnings(self.stores, pool))
        return pool.with_timing("fan-out", (time.perf_counter() - started) * 1000)


async def _filter_warnings(refs: Iterable[StoreRef], pool: Pool) -> tuple[str, ...]:
    """Return notes about tests of the filter that no document passes, on which all stores agree."""
    hits = [hit for found in pool.lists.values() for hit in found]
    keys = {test.key for test in single_conditions(conditions(pool.where))}
    # The usual search pays nothing: each key of the filter is in some hit.
    absent = {key for key in keys if not any(key in hit.metadata for hit in hits)}
    owners = {id(ref.owner): ref.owner for ref in refs}.values()
    if not absent or not all(hasattr(owner, "explain_filter") for owner in owners):
        return ()
    try:
        notes = [await run_until(pool.deadline, owner.explain_filter(pool.where)) for owner in owners]
    except Exception as exc:
        log.debug("the filter could not be explained: %s", redacted(exc))
        return ()
    agreed = absent.intersection(*notes)
    return tuple(note for key, note in notes[0].items() if key in agreed)


def finish(pool: Pool) -> Pool:
    """Cut to k."""
    if len(pool.hits) <= pool.k:
        return pool
    record = cut_record([hit.id for hit in pool.hits], pool.k)
    return pool.reorder(pool.hits[: pool.k], *record, cut=pool.hits[pool.k :])


async def _run_stage(stage: Stage, pool: Pool, kind: StageKind) -> Pool:
    """Run one stage; if it fails or is late, the order stays and the pool says so."""
    name = name_of(stage)
    started = time.perf_counter()
    # A stage is told to stop a little before it is abandoned, so that part of its work is not lost.
    stop = _earlier(pool.deadline, pool.deadline.timeout_s, STOP_S, STOP_SHARE)
    limited = pool if stop is pool.deadline else replace(pool, deadline=stop)
    try:
        # A stage of Resift that only computes never waits: it needs no task to be abandoned.
        if _only_computes(stage, pool):
            done = await stage(limited)
        else:
            done = await run_until(pool.deadline, stage(limited))
        if not _keeps_candidates(stage, pool, done):
            done = validate_stage_output(pool, done, kind=kind, name=name)
    except DeadlinePassed:
        done = (await _fallback_order(pool)).degrade(f"{name}: no answer in time")
    except DamagedDocument:  # a failure of the store, not of the stage
        raise
    # Any exception: the stage may be of another package, and the old order is a better answer than none.
    except Exception as exc:
        log.warning("stage %s failed: %s", name, redacted(exc))
        done = (await _fallback_order(pool)).degrade(f"{name} failed: {redacted(exc)}")
    return done.with_timing(name, (time.perf_counter() - started) * 1000, deadline=pool.deadline)


def _only_computes(stage: Stage, pool: Pool) -> bool:
    """Whether the stage is one of Resift's own and does no I/O; a subclass is of another package."""
    return type(stage) in (Gate, Shape) or (
        type(stage) is Fuse and is_built_in_fusion(stage.reranker_for(pool))
    )


def _keeps_candidates(stage: Stage, before: Pool, after: Pool) -> bool:
    """Whether a stage of Resift has accounted for every candidate; property tests cover these stages.

    Fusion may leave out candidates on purpose: a list of weight 0, texts that are the same.
    """
    if type(stage) is Fuse and is_built_in_fusion(stage.reranker_for(before)):
        return len(after.hits) == len({hit.id for hits in before.lists.values() for hit in hits})
    return type(stage) in (Gate, Rerank, Shape)


async def _fallback_order(pool: Pool) -> Pool:
    """Return the pool in the order it had; before any order, in the order that plain RRF gives."""
    return pool if pool.hits or pool.cut else await Fuse()(pool)


def _earlier(deadline: Deadline, seconds: float | None, most_s: float, share: float) -> Deadline:
    return deadline if seconds is None else deadline.reserve(min(most_s, seconds * share))


def _fuse_stage(fuse: Reranker | Stage | None) -> Stage:
    return Fuse(fuse) if fuse is None or isinstance(fuse, Reranker) else _stage(fuse)


def _rerank_stages(rerank: Scorer | Stages) -> list[Stage]:
    return [Rerank(rerank)] if isinstance(rerank, Scorer) else _listed(rerank)


def _listed(stages: Stages) -> list[Stage]:
    if stages is None:
        return []
    return [_stage(stage) for stage in (stages if isinstance(stages, Iterable) else [stages])]


def _stage(stage: object) -> Stage:
    if not callable(stage):
        raise InputError(f"A stage is a {type(stage).__name__}; pass an async function from Pool to Pool.")
    made: Stage = stage
    return made


async def _closed(part: object) -> None:
    for method in ("aclose", "close"):
        close = getattr(part, method, None)
        if callable(close):
            outcome = close()
            if hasattr(outcome, "__await__"):
                await outcome
            return
