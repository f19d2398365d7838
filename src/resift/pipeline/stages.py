"""The built-in stages: fuse, gate, rerank, shape, context, prune, and a stage for any function on hits."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import ClassVar

from resift._internal.arrays import Vector
from resift.errors import InputError
from resift.external.candidates import MissingText
from resift.pipeline.fan_out import StoreRef
from resift.pipeline.pool import Pool
from resift.protocols import Reranker, Scorer, declared_name, display_name, required_capabilities
from resift.ranking.boosts import drop_filtered
from resift.ranking.context import ContextOptions, TokenCounter, describe, estimate_tokens, make_passage, read_passages
from resift.ranking.fusion.rerankers import RRFReranker
from resift.ranking.gate import NEUTRAL, OWN_SCORE, Profile, gate
from resift.ranking.order_model import MAX_DEPTH, rerank_depth
from resift.ranking.prune import PruneOptions, count_sentences, prune
from resift.ranking.shape import ShapePolicy, shape
from resift.rerankers.rescore import rescore
from resift.resilience import State
from resift.resilience.tiered import scorer_breaker
from resift.types import FusedHits, Hit, JsonObject, JsonValue, StageKind, Trace, make_record
from resift.types.hit import load_hits
from resift.validation import check_fields, option


class Fuse:
    """Fuse the lists of the stores into one, with RRF unless another reranker is given.

    Takes a reranker, or a function `make` that builds one from the store names in declared order. `keep` is
    the `k` of the reranker; None keeps all candidates, so that later stages can choose among them.
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
        self.requires = required_capabilities(reranker)
        self._cached: tuple[object, Reranker] | None = None  # the last reranker, with the key it was built for

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool with fused hits; hits with equal scores are ordered by id."""
        per_store = [list(hits) for hits in pool.lists.values()]
        k = sum(map(len, per_store)) if self.keep is None else self.keep
        reranker = self.reranker_for(pool) if self.reranker is None else self.reranker
        options: JsonObject = {}
        # A reranker with the plain signature `fuse(per_store, *, k)` gets no other arguments.
        for name in _extra_arguments(type(reranker)):
            if name == "query":
                options["query"] = pool.query
            else:
                lists = {r.source: r for r in pool.trace if r.kind is StageKind.RETRIEVE}
                records = [lists.get(store) for store in pool.lists]
                options[name] = (
                    [(record.languages if record else None) or "any" for record in records]
                    if name == "languages"
                    else [record.retrieval_mode if record else "" for record in records]
                )
        result: JsonValue = reranker.fuse(per_store, k=k, **options)
        fused = await result if inspect.isawaitable(result) else result
        if isinstance(fused, FusedHits):
            return pool.reorder(fused, *fused.records)
        name = declared_name(reranker) or "fuse"
        return pool.reorder(fused, make_record(StageKind.FUSE, name, fused, scored=True))

    def reranker_for(self, pool: Pool) -> Reranker:
        """Return the reranker for the stores of this pool."""
        if self.reranker is not None:
            return self.reranker
        # Names of all stores in declared order, even without hits: the first store's text and metadata are kept.
        names = tuple(pool.lists)
        if self._cached is None or self._cached[0] != (names, pool.sink):
            reranker = self.make(names) if self.make else RRFReranker(sources=list(names), sink=pool.sink)
            self._cached = (names, pool.sink), reranker
        return self._cached[1]


# Cached by type, because reading a signature takes longer than fusing.
@lru_cache(maxsize=64)
def _extra_arguments(kind: type[Reranker]) -> tuple[str, ...]:
    """Return the optional arguments that the `fuse` method of this type accepts."""
    parameters = inspect.signature(kind.fuse).parameters
    names = [name for name in ("query", "retrieval_modes", "languages") if name in parameters]
    if "searched" in parameters and "retrieval_modes" not in parameters:  # the name in Resift 0.2
        names.append("searched")
    if "query" not in names and any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        names.append("query")
    return tuple(names)


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """Options of the gate in a pipeline file, in addition to the profile."""

    section: str | None = option("Section for searches that do not specify one.", default=None)
    rerank_top_n: int | None = option("Hits that tightening never drops; k by default.", default=None, min=1)
    top_k: int | None = option("Maximum number of hits after the gate.", default=None, min=1)


@dataclass(eq=False, repr=False)
class Gate:
    """Grade the retrieval, and drop hits below the floor or after the score cliff.

    `section` is the default for searches without one. Tightening never drops the first `rerank_top_n` hits
    (k by default). `breaker_closed` tells whether the reranker is available.
    """

    name: ClassVar = "gate"
    kind: ClassVar = StageKind.GATE

    profile: Profile = NEUTRAL
    _: KW_ONLY
    section: str | None = None
    rerank_top_n: int | None = None
    top_k: int | None = None
    breaker_closed: Callable[[], bool] | None = None

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool without the dropped hits; the grade is in `notes`."""
        if not pool.hits:
            return pool
        result = gate(
            pool.hits,
            trace=pool.trace,
            profile=self.profile,
            section=pool.section or self.section,
            rerank_top_n=self.rerank_top_n or pool.k,
            top_k=self.top_k,
            breaker_closed=self.breaker_closed or pool.breaker_closed,
            sink=pool.sink,
        )
        done = pool.reorder(result.kept, result.record, cut=result.cut)
        if not result.kept:
            floor = result.result.effective_floor
            done = done.degrade(f"{self.name}: none of {len(result.cut)} hits reached the floor {floor:g}")
        return done.with_notes(grade=result.grade.letter)

    def check_scale(self, stores: Iterable[StoreRef]) -> None:
        """Raise InputError if the scale of the floors differs from the scale of the scores after fusion."""
        signal = self.profile.signal
        scales = {ref.name: _SCALES.get(ref.kind) for ref in stores}
        self.profile.check_scale("fused" if signal == OWN_SCORE else scales.get(signal), signal=signal)


# Kind of store -> scale of its scores.
_SCALES = {"vector": "cosine", "doc": "bm25", "hybrid": "fused"}


def is_breaker_closed(scorer: Scorer | None) -> bool:
    """Whether the breaker of a scorer is CLOSED; True if the scorer has no breaker."""
    breaker = scorer_breaker(scorer)
    return breaker is None or breaker.state is State.CLOSED


Depth = Callable[[Pool], int]  # a function that returns the rerank depth for a pool


@dataclass(frozen=True, slots=True)
class AdaptiveDepth:
    """A rerank depth that depends on the fused scores, at most `max_depth`.

    Only weighted fusion has comparable scores. After any other fusion, the depth is `otherwise`.
    """

    max_depth: int = MAX_DEPTH
    otherwise: int = 20

    def __call__(self, pool: Pool) -> int:
        """Return the rerank depth for this pool."""
        fused = next((record for record in reversed(pool.trace) if record.kind is StageKind.FUSE), None)
        scores = [hit.score for hit in pool.hits if hit.score is not None]
        # Only weighted fusion records weights.
        if fused is None or not fused.weights or len(scores) < len(pool.hits):
            return self.otherwise
        return rerank_depth(scores, max_depth=self.max_depth)


class Rerank:
    """Rerank the top `depth` hits with a scorer; the other hits follow in their previous order.

    `depth` is a number, None for all hits, or a function of the pool (`AdaptiveDepth`). If the function
    returns 0, the pool is unchanged.
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
        self.requires = required_capabilities(scorer)

    async def __call__(self, pool: Pool) -> Pool:
        """Return the reranked pool; if no time is left, the order does not change and the pool is degraded."""
        if not pool.hits:
            return pool
        if pool.deadline.expired:
            return pool.degrade(f"{self.name}: no time left for {display_name(self.scorer)}")
        depth = self.depth(pool) if callable(self.depth) else self.depth
        if depth == 0:
            return pool
        top = pool.hits if depth is None else pool.hits[:depth]
        await load_hits(top)  # loaded here, because an unreadable document is not a failure of the scorer
        result = await rescore(
            self.scorer,
            pool.query,
            top,
            pool.hits[len(top) :],
            k=len(pool.hits),
            trace=Trace(),
            deadline=pool.deadline,
            missing_text=self.missing_text,
            stage=self.name,
            sink=pool.sink,
        )
        # Only hits within k count as unscored: deeper hits are not part of the result.
        unscored = (*result.unscored, *[hit.id for hit in pool.hits[len(top) : pool.k]])
        done = replace(pool.reorder(result.hits, *result.trace), tier=result.tier, unscored=unscored)
        return done.degrade(result.reason or self.name) if result.degraded else done


class Shape:
    """Blend, guard, fold, diversify and recover hits according to a policy, then cut to k.

    The default policy blends and guards. `section` is the default for searches without one. With `vectors`
    (id -> vector), diversity compares vectors instead of words.
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
    def uses_neighbors(self) -> bool:
        """Whether the blend uses neighbors of the hits."""
        return self.policy.blend is not None and self.policy.blend.uses_neighbors

    async def __call__(self, pool: Pool) -> Pool:
        """Return the best k hits of the pool; relaxed rules are in `notes`."""
        if not pool.hits:  # a record without hits would only clutter the trace
            return pool
        policy = self.policy
        if pool.where and (policy.recency or policy.boosts):
            recency, boosts = drop_filtered(pool.where, policy.recency, policy.boosts)
            policy = replace(policy, recency=recency, boosts=boosts)
        result = shape(
            pool.hits,
            k=pool.k,
            trace=pool.trace,
            policy=policy,
            section=pool.section or self.section,
            vectors=self.vectors or pool.vectors,
            neighbors=pool.neighbors,
            sink=pool.sink,
        )
        done = pool.reorder(result.kept, *result.records, cut=result.cut)
        return done.with_notes(relaxed=result.notes) if result.notes else done


class Context:
    """Build passages from the final hits and the chunks around them, within a budget; the order does not change.

    It is the last stage of a pipeline, or the one before `Prune`. `Ranking.passages` contains the result, and
    `Ranking.context` turns it into a prompt.
    """

    kind = StageKind.SHAPE
    name = "context"

    def __init__(self, options: ContextOptions | None = None, *, count_tokens: TokenCounter | None = None) -> None:
        self.options = options or ContextOptions()
        check_fields(self.options)
        self.count_tokens = count_tokens

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool with passages; it is degraded if the neighbors cannot be read."""
        hits = pool.hits[: pool.k]
        if not hits:
            return pool
        await load_hits(hits)
        count = _token_counter(pool, self.count_tokens)
        passages, reason = await read_passages(hits, pool.reader, self.options, count=count, deadline=pool.deadline)
        notes = describe(passages, [hit.id for hit in hits])
        record = make_record(self.kind, self.name, pool.hits, notes=notes)
        done = replace(pool.with_records(record), passages=tuple(passages))
        return done.degrade(reason) if reason else done


class Prune:
    """Keep only the sentences of the passages, or of the final hits, that answer the query.

    The order does not change. The reranker of the pipeline scores the sentences, unless a scorer is given.
    """

    kind = StageKind.SHAPE
    name = "prune"

    def __init__(
        self,
        options: PruneOptions | None = None,
        *,
        scorer: Scorer | None = None,
        count_tokens: TokenCounter | None = None,
    ) -> None:
        self.options = options or PruneOptions()
        check_fields(self.options)
        self.own_scorer = scorer
        self.count_tokens = count_tokens

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool with shorter passages; it is degraded if the sentences cannot be scored."""
        hits = pool.hits[: pool.k]
        scorer = self.own_scorer or (pool.reader.scorer if pool.reader else None)
        if not hits:
            return pool
        if scorer is None:
            return pool.degrade(f"{self.name}: the pipeline has no reranker to score sentences with")
        await load_hits(hits)
        count = _token_counter(pool, self.count_tokens)
        passages = pool.passages or [make_passage([hit], (hit.id,)) for hit in hits if hit.text.strip()]
        kept_passages, reason = await prune(
            pool.query, passages, scorer, options=self.options, count=count, deadline=pool.deadline
        )
        notes = {
            id: f"{kept} of {total} sentences kept"
            for id, (kept, total) in count_sentences(passages, kept_passages).items()
        }
        record = make_record(self.kind, self.name, pool.hits, notes=notes)
        done = replace(pool.with_records(record), passages=tuple(kept_passages))
        return done.degrade(reason) if reason else done


def _token_counter(pool: Pool, counter: TokenCounter | None) -> TokenCounter:
    return counter or (pool.reader.token_counter() if pool.reader else None) or estimate_tokens


@dataclass(frozen=True, slots=True)
class OnHits:
    """Use a sync or async function on hits as a stage; hits that it does not return are dropped."""

    name: str
    function: Callable[[Sequence[Hit]], Sequence[Hit] | Awaitable[Sequence[Hit]]]
    requires: tuple[str, ...] = ()

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool with the hits that the function returned."""
        # The hits carry the trace for functions that need evidence.
        hits = self.function(FusedHits(pool.hits, *pool.trace))
        return pool.reorder(await hits if inspect.isawaitable(hits) else hits)
