"""Pipeline: query stores, then fuse, gate, rerank, guard and shape their hits; every stage is optional."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypedDict, Unpack

from resift._internal.sync import sync_method
from resift.deadline import Clock, Deadline
from resift.errors import CapabilityError, InputError, redact
from resift.events import Sink, ambient_sink
from resift.pipeline.fan_out import LATE, DeadlinePassed, OverFetch, Store, Stores, fan_out, run_until, store_refs
from resift.pipeline.pool import Pool, Stage, validate_stage_output
from resift.pipeline.search_slots import Slot, search_slots
from resift.pipeline.stages import Fuse, Gate, Rerank, Shape, is_breaker_closed
from resift.protocols import Reranker, Scorer, ScoringStage, display_name, required_capabilities
from resift.ranking.blend import nearest_neighbors
from resift.ranking.context import PassageReader
from resift.ranking.fusion.methods import METHODS
from resift.ranking.fusion.rerankers import BUILT_IN_FUSION
from resift.stores.base import DocumentLoadError
from resift.stores.filters import list_conditions, parse_filter
from resift.types import Ranking, StageKind, Trace, Where, cut_record
from resift.types.hit import load_hits
from resift.validation import checks

log = logging.getLogger("resift.pipeline")

FETCH = OverFetch(factor=10, minimum=100, cap=1000)
"""Default number of candidates per store: 100 for k=10. Longer lists make the z-scores of the blend more stable."""

TIMEOUT_S = 30.0  # default timeout of a store without its own timeout

FAN_OUT_SHARE = 0.6  # share of the deadline for the stores if later stages need time

MARGIN_S, MARGIN_SHARE = 0.05, 0.1
"""Reserve before the deadline, so that the result is returned in time: 50 ms, or 10 % if that is less."""

STOP_S, STOP_SHARE = 0.02, 0.05
"""Time before its deadline at which a stage is asked to stop: 20 ms, or 5 % if that is less."""

NEIGHBORS_STAGE = "neighbors"

MAX_NEIGHBOR_HITS = 200
"""Maximum number of hits that are compared with each other; the work grows with the square of this number."""

Stages = Stage | Iterable[Stage] | None


class PipelineParts(TypedDict, total=False):
    """The arguments of `Pipeline` except its stores and its reranker."""

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
    """The arguments of `Pipeline` that override a file."""

    rerank: Scorer | Stages


class Pipeline:
    """Queries stores and passes their hits through stages.

    `rerank` is a scorer, which reranks the top 20, or one or more stages. `gate`, `guard` and `shape` are one
    or more stages. Deadline, event sink and capabilities apply to all of them. `timeout_s` is the timeout of
    stores without their own.
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
        k: int = checks.DEFAULT_K,
        fetch: OverFetch = FETCH,
        deadline_s: float | None = None,
        timeout_s: float | None = TIMEOUT_S,
        capabilities: Collection[str] | None = None,
        sink: Sink | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.stores = store_refs(stores)
        slots: list[tuple[StageKind, list[Stage]]] = [
            (StageKind.FUSE, [Fuse(fuse)] if fuse is None or isinstance(fuse, Reranker) else _list_stages(fuse)),
            (StageKind.GATE, _list_stages(gate)),
            (StageKind.RERANK, [Rerank(rerank)] if isinstance(rerank, Scorer) else _list_stages(rerank)),
            (StageKind.GUARD, _list_stages(guard)),
            (StageKind.SHAPE, _list_stages(shape)),
        ]
        self.stages = tuple(stage for _, stages in slots for stage in stages)
        # The declared kind of a stage, or the kind of the argument; never the display name.
        self._kinds = tuple(getattr(stage, "kind", kind) for kind, stages in slots for stage in stages)
        self._names = tuple(map(display_name, self.stages))
        self._use_neighbors = [stage for stage in self.stages if getattr(stage, "uses_neighbors", False)]
        # A reranker replaces the scores, so the scale is checked only for gates before it.
        for kind, stage in zip(self._kinds, self.stages, strict=True):
            if kind is StageKind.RERANK:
                break
            if isinstance(stage, Gate):
                stage.check_scale(self.stores)
        # The breaker of the first scorer decides how much a gate before it may drop.
        scorers = [stage.scorer for stage in self.stages if isinstance(stage, Rerank)]
        self._breaker_closed = partial(is_breaker_closed, scorers[0]) if scorers else None
        checks.check_k(k)
        checks.check_seconds(deadline_s)
        checks.check_seconds(timeout_s, "timeout_s")
        checks.check_callable(fetch, "fetch", "an OverFetch")
        if sink is not None:
            checks.check_callable(sink, "sink", "a function that takes an event")
        checks.check_callable(clock, "clock", "a monotonic clock such as time.monotonic")
        if capabilities is not None:
            checks.check_list(capabilities, "capabilities", "names such as db.docs:read")
        self._owners = tuple({id(ref.owner): ref.owner for ref in self.stores}.values())
        self._reader = PassageReader(self._owners, self.scorer)
        self.k = k
        self.fetch = fetch
        self.deadline_s = deadline_s
        self.timeout_s = timeout_s
        self.capabilities = capabilities
        self.sink = sink
        self.clock = clock

    @property
    def requires(self) -> tuple[str, ...]:
        """All capabilities that a search requires: those of the stores, then those of the stages."""
        names = [ref.capability for ref in self.stores]
        for stage in self.stages:
            names.extend(required_capabilities(stage))
        return tuple(dict.fromkeys(names))

    @property
    def scorer(self) -> Scorer | None:
        """The scorer of the last rerank stage; None without one."""
        return next((stage.scorer for stage in reversed(self.stages) if isinstance(stage, Rerank)), None)

    async def search(
        self,
        query: str,
        *,
        k: int | None = None,
        deadline_s: float | None = None,
        where: Where | None = None,
        section: str | None = None,
        capabilities: Collection[str] | None = None,
        deadline: Deadline | None = None,
    ) -> Ranking:
        """Return the best k hits within the deadline; the ranking names failed and skipped parts.

        `deadline` replaces `deadline_s`, for callers that share a deadline with other work. Raises
        CapabilityError before any I/O, InputError for an invalid argument, and RetrievalError if every store
        failed. A late store does not count as failed: if all are late, the ranking is empty.
        """
        k = self.k if k is None else k
        checks.check_k(k)
        checks.check_query(query)
        if where is not None:
            checks.check_mapping(where, "where")
        if section is not None:
            checks.check_text(section, "section")
        for granted in (self.capabilities, capabilities):
            missing = [] if granted is None else [name for name in self.requires if name not in granted]
            if missing:
                raise CapabilityError(missing)
        if deadline is None:
            limit_s = self.deadline_s if deadline_s is None else deadline_s
            deadline = Deadline(clock=self.clock) if limit_s is None else Deadline.after(limit_s, clock=self.clock)
        seconds = deadline.timeout_s
        pool = Pool(
            query=query,
            k=k,
            where=where,
            section=section,
            deadline=deadline if seconds is None else _reserve(deadline, seconds, MARGIN_S, MARGIN_SHARE),
            sink=self.sink,
            breaker_closed=self._breaker_closed,
            reader=self._reader,
        )
        if k == 0:
            return pool.ranking()
        started = time.perf_counter()
        slot = None
        if seconds is not None and all(getattr(owner, "uses_local_cores", False) for owner in self._owners):
            slot = await search_slots.acquire(pool.deadline)
            if slot is None:
                pool.timings["total"] = (time.perf_counter() - started) * 1000
                late = replace(pool, failures={ref.name: LATE for ref in self.stores})
                return late.degrade("deadline: no time left after waiting for other searches").ranking()
            seconds = deadline.remaining_s()
        with nullcontext() if self.sink is None else ambient_sink(self.sink):
            try:
                done = await self._run(pool, seconds, lazy=True, slot=slot)
                await load_hits(done.hits)
            except DocumentLoadError:
                # Run again and verify every document: the damaged store fails as a whole, and the ranking names it.
                pool.timings.clear()
                done = await self._run(pool, seconds, lazy=False)
            finally:
                if slot is not None:
                    slot.release()
        pool.timings["total"] = (time.perf_counter() - started) * 1000
        return done.ranking()

    rank = sync_method(search, "rank")

    def deadline_after(self, deadline_s: float | None) -> Deadline:
        """Return the deadline of a search that starts now; None uses the deadline of the pipeline."""
        return Deadline.after(self.deadline_s if deadline_s is None else deadline_s, clock=self.clock)

    async def _run(self, pool: Pool, seconds: float | None, *, lazy: bool, slot: Slot | None = None) -> Pool:
        """Query the stores, run the stages and cut to k; the slot is released before the candidates are scored."""
        started = time.perf_counter()
        deadline = pool.deadline
        # Fusion takes little time, so only later stages need a share of the deadline.
        if seconds is not None and len(self.stages) > 1:
            deadline = deadline.sooner(seconds * FAN_OUT_SHARE)
        results = await fan_out(
            self.stores,
            pool.query,
            k=self.fetch(pool.k),
            where=pool.where,
            deadline=deadline,
            last=pool.deadline,
            timeout_s=self.timeout_s,
            sink=pool.sink,
            lazy=lazy,
        )
        failures = {result.ref.name: result.failure for result in results if result.failure}
        reason = f"{len(failures)} of {len(results)} stores failed: {', '.join(failures)}"
        if len(failures) == len(results):
            reason = f"deadline: {LATE} from any store"
        pool = replace(
            pool,
            lists={result.ref.name: result.hits for result in results},
            failures=failures,
            reasons=(*pool.reasons, reason) if failures else pool.reasons,
            trace=Trace([result.record for result in results if result.record is not None]),
            warnings=tuple([result.warning for result in results if result.warning]),
        )
        if pool.where and not failures:
            pool = replace(pool, warnings=(*pool.warnings, *await self._filter_warnings(pool)))
        pool.timings["fan-out"] = (time.perf_counter() - started) * 1000
        if len(failures) == len(results):
            return pool  # all stores are late, so there is nothing to fuse or rerank
        for kind, name, stage in zip(self._kinds, self._names, self.stages, strict=True):
            if slot is not None and kind is StageKind.RERANK:
                slot.release()  # the engine limits and orders the work of scorers itself
            if stage in self._use_neighbors:
                pool = await self.add_neighbors(pool)
            pool = await _run_stage(stage, pool, kind, name)
        if len(pool.hits) > pool.k:
            record = cut_record([hit.id for hit in pool.hits], pool.k)
            pool = pool.reorder(pool.hits[: pool.k], *record, cut=pool.hits[pool.k :])
        return pool

    async def _filter_warnings(self, pool: Pool) -> tuple[str, ...]:
        """Return warnings about filter conditions that no document in any store meets."""
        hits = [hit for store_hits in pool.lists.values() for hit in store_hits]
        keys = {condition.key for condition in list_conditions(parse_filter(pool.where))}
        # Usually every key of the filter occurs in a hit, so no store has to be queried.
        absent = {key for key in keys if not any(key in hit.metadata for hit in hits)}
        if not absent or not all(hasattr(owner, "explain_filter") for owner in self._owners):
            return ()
        try:
            notes = [await run_until(pool.deadline, owner.explain_filter(pool.where)) for owner in self._owners]
        except Exception as exc:
            log.debug("the filter could not be explained: %s", redact(exc))
            return ()
        unmatched = absent.intersection(*notes)
        return tuple(note for key, note in notes[0].items() if key in unmatched)

    async def add_neighbors(self, pool: Pool) -> Pool:
        """Return the pool with the neighbors of its hits, computed from the vectors of one store.

        Stores may have different embedders, so only the store with vectors for the most hits is used.
        """
        # `vectors_of` is the name of the method in Resift 0.2.
        methods = [getattr(owner, "get_vectors", getattr(owner, "vectors_of", None)) for owner in self._owners]
        readers = [method for method in methods if method is not None]
        if pool.neighbors or not readers or len(pool.hits) < 2 or pool.deadline.expired:
            return pool
        started = time.perf_counter()
        ids = [hit.id for hit in pool.hits[:MAX_NEIGHBOR_HITS]]
        try:
            vectors = max([await run_until(pool.deadline, read(ids)) for read in readers], key=len)
            # In a thread, because the dot products would block the event loop for milliseconds.
            neighbors = await run_until(pool.deadline, asyncio.to_thread(nearest_neighbors, vectors))
        except DeadlinePassed:
            return pool.degrade(f"{NEIGHBORS_STAGE}: no vectors in time")
        except Exception as exc:
            log.warning("%s: no vectors: %s", NEIGHBORS_STAGE, redact(exc))
            return pool.degrade(f"{NEIGHBORS_STAGE}: no vectors: {redact(exc)}")
        pool.timings[NEIGHBORS_STAGE] = (time.perf_counter() - started) * 1000
        return replace(pool, neighbors=neighbors)

    async def close(self) -> None:
        """Close all stores and scorers that can be closed."""
        scorers = (stage.scorer if isinstance(stage, ScoringStage) else stage for stage in self.stages)
        parts = [*self._owners, *scorers]
        # Compared by identity, so that a store with two views or a scorer in two stages is closed once.
        for part in {id(part): part for part in parts}.values():
            close = getattr(part, "aclose", None) or getattr(part, "close", None)
            if callable(close):
                outcome = close()
                if hasattr(outcome, "__await__"):
                    await outcome

    @classmethod
    @checks.check_arguments
    def default(
        cls, store: Store, *, rerank: bool = True, reranker: str | None = None, **options: Unpack[PipelineParts]
    ) -> Pipeline:
        """Return the default pipeline for a store: hybrid search, weighted fusion, reranking and blending.

        `reranker` selects another cross-encoder, built in or pinned by `resift models add`.
        """
        from resift.pipeline.defaults import default_options

        return cls(**{**default_options(store, rerank=rerank, reranker=reranker), **options})

    @classmethod
    def from_yaml(cls, path: str | Path, **options: Unpack[PipelineOptions]) -> Pipeline:
        """Return the pipeline that a YAML file describes; raises ConfigError with file and line."""
        from resift.config import pipeline_from_yaml

        return pipeline_from_yaml(path, **options)

    @classmethod
    def from_config(cls, config: Mapping[str, object], **options: Unpack[PipelineOptions]) -> Pipeline:
        """Return the pipeline that a dict describes, with the same keys as a pipeline file."""
        from resift.config import pipeline_from_config

        return pipeline_from_config(config, **options)


async def _run_stage(stage: Stage, pool: Pool, kind: StageKind, name: str) -> Pool:
    """Run one stage; if it fails or times out, the order does not change and the pool is degraded."""
    started = time.perf_counter()
    # A stage is asked to stop a little before it is abandoned, so that partial results are not lost.
    seconds, limited = pool.deadline.timeout_s, pool
    if seconds is not None:
        limited = replace(pool, deadline=_reserve(pool.deadline, seconds, STOP_S, STOP_SHARE))
    is_built_in_fusion = keeps_all = False
    if type(stage) is Fuse:  # a subclass may wait, and may break the contract
        reranker = stage.reranker_for(pool) if stage.reranker is None else stage.reranker
        if isinstance(reranker, BUILT_IN_FUSION) and type(reranker) in BUILT_IN_FUSION and reranker.name in METHODS:
            is_built_in_fusion = True
            # With these options it drops candidates on purpose: lists of weight 0, equal texts, or hits beyond k.
            keeps_all = stage.keep is None and not {"weights", "identity", "dialect"} & reranker.options.keys()
    try:
        # Built-in stages without I/O never wait, so they do not need a task that can be abandoned.
        if is_built_in_fusion or type(stage) in (Gate, Shape):
            done = await stage(limited)
        else:
            done = await run_until(pool.deadline, stage(limited))
        if not keeps_all and type(stage) not in (Gate, Rerank, Shape):
            done = validate_stage_output(pool, done, kind=kind, name=name)
    except DeadlinePassed:
        done = (await _fallback_order(pool)).degrade(f"{name}: no answer in time")
    except DocumentLoadError:  # the store failed, not the stage
        raise
    # Catches all exceptions: the stage may be third-party code, and the old order is better than no result.
    except Exception as exc:
        log.warning("stage %s failed: %s", name, redact(exc))
        done = (await _fallback_order(pool)).degrade(f"{name} failed: {redact(exc)}")
    # Summed, because two stages may have the same name.
    pool.timings[name] = pool.timings.get(name, 0.0) + (time.perf_counter() - started) * 1000
    return done if done.deadline is pool.deadline else replace(done, deadline=pool.deadline)


async def _fallback_order(pool: Pool) -> Pool:
    """Return the pool in its current order, or fused with plain RRF if it has no order yet."""
    return pool if pool.hits or pool.cut else await Fuse()(pool)


def _reserve(deadline: Deadline, seconds: float, max_s: float, share: float) -> Deadline:
    return deadline.reserve(min(max_s, seconds * share))


def _list_stages(stages: Stages) -> list[Stage]:
    stage_list = [] if stages is None else list(stages) if isinstance(stages, Iterable) else [stages]
    for stage in stage_list:
        if not callable(stage):
            raise InputError(
                f"A stage is a {type(stage).__name__}; pass an async function that takes and returns a Pool."
            )
    return stage_list
