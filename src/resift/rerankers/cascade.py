"""Early exit: score hits in a cheap order and stop as soon as the top k is settled. Off by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from resift.deadline import Deadline
from resift.protocols import Scorer, describe_scorer
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.rerankers.rescore import FusesThenScores
from resift.types import Hit, ScorerInfo, Scores
from resift.validation import DEFAULT_K, Options, check_k, option

# Large enough to keep all workers of a small machine busy, small enough to stop early.
_BATCH_SIZE = 8


@dataclass(frozen=True, kw_only=True)
class CascadeOptions(Options):
    """Options of a cascade in a pipeline file."""

    k: int = option("Stop once the best k hits are settled.", default=10, min=1)
    patience: int = option("The top k is settled after this many hits in a row without a change.", default=20, min=1)


class CascadeReranker(FusesThenScores):
    """Scores hits in a cheap order and stops when the best k are settled.

    They are settled once `patience` consecutive hits score below the k-th best so far. Later hits stay unscored, in
    their original order. The cheap order comes from the scorer `cheap`; without it, it is the order given.
    """

    Options = CascadeOptions
    name = "cascade"

    def __init__(
        self, scorer: Scorer | None = None, *, cheap: Scorer | None = None, k: int = DEFAULT_K, patience: int = 20
    ) -> None:
        check_k(k, min=1)
        check_k(patience, name="patience", min=1)
        self.scorer: Scorer = scorer if scorer is not None else CrossEncoderReranker()
        self.cheap = cheap
        self.k = k
        self.patience = patience

    @property
    def info(self) -> ScorerInfo:
        """Description of the expensive scorer; not pointwise, because all hits affect when it stops."""
        return replace(describe_scorer(self.scorer), name=self.name, pointwise=False)

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return the expensive scorer's score for each hit, or None for unscored hits."""
        order = await self._cheap_order(query, hits, deadline)
        values: list[float | None] = [None] * len(hits)
        done = tokens = 0
        info = self.info
        while done < len(order) and not self._is_settled([values[i] for i in order[:done]]):
            batch = order[done : done + _BATCH_SIZE]
            scores = await self.scorer.score(query, [hits[i] for i in batch], deadline=deadline)
            for i, value in zip(batch, scores.values, strict=True):
                values[i] = value
            done += len(batch)
            tokens += scores.tokens
            if scores.scorer is not None:
                info = replace(scores.scorer, name=self.name, pointwise=False)
            if scores.degraded:
                return replace(scores, values=values, provider=self.name, notes={}, tokens=tokens, scorer=info)
        return Scores(
            values,
            self.name,
            reason=f"top {self.k} settled after {done} of {len(hits)} hits" if done < len(hits) else None,
            note=f"cascade: {done} of {len(hits)} hits scored",
            settled=done < len(hits),
            tokens=tokens,
            scorer=info,
        )

    async def fuse(self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None) -> list[Hit]:
        """Fuse the lists by reciprocal rank and return the best k."""
        # Settling fewer hits than requested would leave some of the results unscored.
        cascade = CascadeReranker(self.scorer, cheap=self.cheap, k=max(self.k, k), patience=self.patience)
        return await FusesThenScores.fuse(cascade, per_store, k=k, query=query)

    async def _cheap_order(self, query: str, hits: Sequence[Hit], deadline: Deadline) -> list[int]:
        if self.cheap is None:
            return list(range(len(hits)))
        values = (await self.cheap.score(query, hits, deadline=deadline)).values
        # Hits that the cheap scorer could not score come last, in their original order.
        keys = [(value is None, -value if value is not None else 0.0, i) for i, value in enumerate(values)]
        return [i for *_, i in sorted(keys)]

    def _is_settled(self, scores: Sequence[float | None]) -> bool:
        known = [value for value in scores if value is not None]
        if len(known) < self.k + self.patience:
            return False
        kth_best = sorted(known[: -self.patience], reverse=True)[self.k - 1]
        return all(value < kth_best for value in known[-self.patience :])
