"""Early exit: a cheap order first, the costly scorer only until the top k is settled. Off by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from resift.deadline import Deadline
from resift.protocols import Scorer, describe_scorer
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.rerankers.fusing import fuse_then_rescore
from resift.types import Hit, ScorerInfo, Scores
from resift.validation import DEFAULT_K, Options, check_k, option

# Enough to keep all workers of a small machine busy, few enough to stop soon.
_BATCH = 8


@dataclass(frozen=True, kw_only=True)
class CascadeOptions(Options):
    """What a pipeline file can say of a cascade."""

    k: int = option("Stop once the best this many are settled.", default=10, min=1)
    patience: int = option("Settled: this many in a row changed nothing.", default=20, min=1)


class CascadeReranker:
    """Scores hits in a cheap order and stops when the best k are settled.

    The rule: the top k counts as settled once `patience` hits in a row, in the cheap order, scored below the
    k-th best so far. Hits after that stay unscored, in their old order. The cheap order is that of `cheap`
    (any scorer; late interaction with stored vectors costs next to nothing), or the order given.
    """

    Options = CascadeOptions
    name = "cascade"

    def __init__(
        self,
        scorer: Scorer | None = None,
        *,
        cheap: Scorer | None = None,
        k: int = DEFAULT_K,
        patience: int = 20,
    ) -> None:
        check_k(k, min=1)
        check_k(patience, name="patience", min=1)
        self.scorer: Scorer = scorer if scorer is not None else CrossEncoderReranker()
        self.cheap = cheap
        self.k = k
        self.patience = patience

    @property
    def info(self) -> ScorerInfo:
        """Description of the costly scorer, whose scores these are; when it stops depends on all hits."""
        return replace(describe_scorer(self.scorer), name=self.name, pointwise=False)

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return the costly scorer's value for each hit that it was asked about, None for the others."""
        order = await self._cheap_order(query, hits, deadline)
        values: list[float | None] = [None] * len(hits)
        asked = tokens = 0
        info = self.info
        while asked < len(order) and not self._is_final([values[at] for at in order[:asked]]):
            batch = order[asked : asked + _BATCH]
            said = await self.scorer.score(query, [hits[at] for at in batch], deadline=deadline)
            for at, value in zip(batch, said.values, strict=True):
                values[at] = value
            asked += len(batch)
            tokens += said.tokens
            if said.scorer is not None:
                info = replace(said.scorer, name=self.name, pointwise=False)
            if said.degraded:
                return Scores(
                    values,
                    self.name,
                    degraded=True,
                    reason=said.reason,
                    note=said.note,
                    tokens=tokens,
                    scorer=info,
                )
        note = f"cascade: {asked} of {len(hits)} hits scored"
        reason = f"top {self.k} settled after {asked} of {len(hits)} hits" if asked < len(hits) else None
        return Scores(
            values, self.name, reason=reason, note=note, settled=asked < len(hits), tokens=tokens, scorer=info
        )

    async def fuse(
        self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None
    ) -> list[Hit]:
        """Pool the lists by reciprocal rank and return the best k of the pool."""
        # Stopping at fewer than the caller wants would leave part of its answer unjudged.
        wide = CascadeReranker(self.scorer, cheap=self.cheap, k=max(self.k, k), patience=self.patience)
        return await fuse_then_rescore(wide, per_store, k=k, query=query)

    async def _cheap_order(self, query: str, hits: Sequence[Hit], deadline: Deadline) -> list[int]:
        if self.cheap is None:
            return list(range(len(hits)))
        said = (await self.cheap.score(query, hits, deadline=deadline)).values
        # What the cheap scorer could not judge comes last, in the order given.
        keys = [(value is None, -value if value is not None else 0.0, at) for at, value in enumerate(said)]
        return [at for *_, at in sorted(keys)]

    def _is_final(self, scored: Sequence[float | None]) -> bool:
        known = [value for value in scored if value is not None]
        if len(known) < self.k + self.patience:
            return False
        bar = sorted(known[: -self.patience], reverse=True)[self.k - 1]
        return all(value < bar for value in known[-self.patience :])
