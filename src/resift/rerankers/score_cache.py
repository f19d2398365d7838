"""CachedScorer: asks a scorer only about texts whose score for this query is not known yet."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from resift.deadline import Deadline
from resift.errors import InputError, ResiftError
from resift.events import Event, Sink, emit
from resift.protocols import OfModel, Scorer, describe_scorer, name_of
from resift.rerankers.fusing import fuse_then_rescore
from resift.rerankers.score_stores import ScoreStore
from resift.types import Hit, ScorerInfo, Scores
from resift.validation import check_arguments

T = TypeVar("T")

log = logging.getLogger("resift.rerankers")


class ScoreCacheUsed(Event, name="score_cache"):
    """A pool went through a score cache; `failed` says that the cache itself did not work."""

    provider: str
    hits: int
    misses: int
    failed: bool


class CachedScorer:
    """Scores from the cache, and the rest from the scorer, by (model, revision, query, text).

    Only for a pointwise scorer, whose score of a text does not depend on the other texts. A cache that
    fails is a cache that knows nothing. When the scorer fails, its error is raised although some
    scores are known: a few cached ones must not hide a failing provider from its breaker.
    """

    pointwise = True

    @check_arguments
    def __init__(
        self,
        scorer: Scorer,
        cache: ScoreStore,
        *,
        model: str | None = None,
        revision: str | None = None,
        pointwise: bool | None = None,
        sink: Sink | None = None,
    ) -> None:
        self.name = name_of(scorer)
        judged_alone = describe_scorer(scorer).pointwise if pointwise is None else pointwise
        if judged_alone is not True:
            raise InputError(
                f"Scores of {self.name!r} may depend on the whole pool, so they cannot be cached per text. "
                "Cache a pointwise scorer, or pass pointwise=True if you know that this one is."
            )
        self._scorer = scorer
        self._cache = cache
        self._sink = sink
        # The name too: two providers may serve one model and score it differently.
        self._prefix = _digest(self.name, *_identity(scorer, model, revision))

    def __repr__(self) -> str:
        return f"CachedScorer({self._scorer!r}, {self._cache!r})"

    def __getattr__(self, name: str) -> Any:
        # What tiers and stores ask a scorer: its breaker, what it needs, how to close it.
        if name in ("aclose", "breaker", "breaker_key", "model", "requires", "revision"):
            return getattr(self._scorer, name)
        raise AttributeError(f"CachedScorer has no attribute {name!r}")

    @property
    def info(self) -> ScorerInfo:
        """Description of the scorer whose scores are cached."""
        return replace(describe_scorer(self._scorer), pointwise=True)

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one score per hit; the scorer sees only the texts that are not known."""
        keys = [_digest(self._prefix, query, hit.text) for hit in hits]
        nothing: dict[bytes, float] = {}
        known, failed = await self._try(lambda: self._cache.get_many(keys), nothing)
        values: list[float | None] = [_usable(known.get(key)) for key in keys]
        unknown = [at for at, value in enumerate(values) if value is None]
        event = ScoreCacheUsed(
            provider=self.name, hits=len(hits) - len(unknown), misses=len(unknown), failed=failed
        )
        emit(self._sink, event)
        if not unknown:
            return Scores(values, self.name, note="from the score cache", scorer=self.info)
        scores = await self._scorer.score(query, [hits[at] for at in unknown], deadline=deadline)
        if len(scores.values) != len(unknown):
            raise ResiftError(f"{self.name} gave {len(scores.values)} scores for {len(unknown)} hits.")
        for at, value in zip(unknown, scores.values, strict=True):
            values[at] = value
        fresh = {keys[at]: float(value) for at in unknown if (value := _usable(values[at])) is not None}
        # A cache that just failed would only fail again, and a locked file costs time.
        if fresh and not failed:
            await self._try(lambda: self._cache.put_many(fresh), None)
        return replace(scores, values=values, scorer=scores.scorer or self.info)

    async def fuse(
        self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None
    ) -> list[Hit]:
        """Pool the lists by reciprocal rank and return the k that score best."""
        return await fuse_then_rescore(self, per_store, k=k, query=query)

    async def _try(self, work: Callable[[], T], otherwise: T) -> tuple[T, bool]:
        try:
            return (await asyncio.to_thread(work) if self._cache.blocking else work()), False
        except Exception as exc:
            log.warning("score cache of %s failed: %s", self.name, type(exc).__name__)
            return otherwise, True


def _identity(scorer: Scorer, model: str | None, revision: str | None) -> tuple[str, str]:
    named = scorer.model_name if isinstance(scorer, OfModel) else None
    model = model or getattr(scorer, "model", None) or named
    if not isinstance(model, str):
        raise InputError(f"{name_of(scorer)!r} does not say which model it is; pass model=.")
    return model, str(revision or getattr(scorer, "revision", None) or "")


def _digest(*parts: str | bytes) -> bytes:
    """Hash the parts with their lengths, so that no two lists of parts share a digest."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.digest()


def _usable(value: float | None) -> float | None:
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None
