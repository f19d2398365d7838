"""The gate as a stage: only what is good enough goes on to the reranker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from resift.pipeline.pool import Pool
from resift.pipeline.store_ref import StoreRef
from resift.protocols import Scorer
from resift.ranking.gate import NEUTRAL, Profile, gate
from resift.ranking.gate.profiles import OWN_SCORE
from resift.resilience import State
from resift.resilience.tiered import own_breaker
from resift.types import StageKind
from resift.validation import option


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """What a pipeline file can say of the gate, besides the profile."""

    section: str | None = option("The section where a search names none.", default=None)
    rerank_top_n: int | None = option("Hits that tightening never cuts; k unless given.", default=None, min=1)
    top_k: int | None = option("Most hits that go on.", default=None, min=1)


class Gate:
    """Grades the retrieval and cuts what lies under the floor or past the cliff.

    `section` stands in where a search names none. `rerank_top_n` hits are never cut by tightening (k
    unless given); `breaker_closed` says whether the reranker can be trusted to choose among fewer.
    """

    name = "gate"
    kind = StageKind.GATE

    def __init__(
        self,
        profile: Profile = NEUTRAL,
        *,
        section: str | None = None,
        rerank_top_n: int | None = None,
        top_k: int | None = None,
        breaker_closed: Callable[[], bool] | None = None,
    ) -> None:
        self.profile = profile
        self.section = section
        self.rerank_top_n = rerank_top_n
        self.top_k = top_k
        self.breaker_closed = breaker_closed

    async def __call__(self, pool: Pool) -> Pool:
        """Return the pool with only what passed; later stages find the grade in `notes`."""
        if not pool.hits:
            return pool
        gated = gate(
            pool.hits,
            trace=pool.trace,
            profile=self.profile,
            section=pool.section or self.section,
            rerank_top_n=self.rerank_top_n or pool.k,
            top_k=self.top_k,
            breaker_closed=self.breaker_closed or pool.breaker_closed,
            sink=pool.sink,
        )
        done = pool.reorder(gated.kept, gated.record, cut=gated.cut)
        if not gated.kept:
            floor = gated.result.effective_floor
            done = done.degrade(f"{self.name}: none of {len(gated.cut)} hits reached the floor {floor:g}")
        return done.with_notes(grade=gated.grade.letter)

    def check_scale(self, stores: Iterable[StoreRef]) -> None:
        """Raise InputError where the floors are for another scale than the scores they meet behind fusion."""
        signal = self.profile.signal
        kinds = {ref.name: _SCALES.get(ref.kind) for ref in stores}
        self.profile.check_scale("fused" if signal == OWN_SCORE else kinds.get(signal), signal=signal)


# What the kind of a store says about the range of its scores.
_SCALES = {"vector": "cosine", "doc": "bm25", "hybrid": "fused"}


def closed(scorer: Scorer | None) -> Callable[[], bool]:
    """Return a function that says whether a scorer's breaker is CLOSED; one without a breaker is."""

    # A function and no value: breakers open and close while a pipeline lives.
    def is_closed() -> bool:
        breaker = own_breaker(scorer)
        return breaker is None or breaker.state is State.CLOSED

    return is_closed
