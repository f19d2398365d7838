"""The fallback tier: cosine and BM25 blended 70 to 30, BM25 alone where there are no vectors."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

from resift.deadline import Deadline
from resift.errors import InputError, ResiftError, redacted
from resift.models.embedder import EmbedderOptions, embedding_models
from resift.protocols import Embedder
from resift.rerankers.bm25 import PoolBM25
from resift.rerankers.cosine import Vector, cosines
from resift.rerankers.fusing import fuse_then_rescore
from resift.resilience.budget import Budget
from resift.text.bm25 import POOL
from resift.types import Hit, ScorerInfo, Scores
from resift.validation import check_arguments, option

CACHED_VECTORS = 2048
"""How many texts keep the vector that the embedder gave; the oldest go first."""

INLINE_CHARACTERS = 300_000
"""A pool with more text than this is counted in a worker thread, so that the loop stays free."""


@dataclass(frozen=True, kw_only=True)
class SemanticBM25Options(EmbedderOptions):
    """What a pipeline file can say of this scorer."""

    semantic_weight: float = option("Weight of the meaning.", default=0.7, min=0)
    bm25_weight: float = option("Weight of the words.", default=0.3, min=0)
    embedder: str | None = option(
        "Model for the meaning; without one, words alone decide.", default=None, choices=embedding_models
    )


class SemanticBM25Reranker:
    """Scores by `(semantic_weight × max(0, cosine) + bm25_weight × BM25) / total`, from 0 to 1.

    Vectors come from `hit.metadata["vector"]` or the embedder; BM25 counts within the pool (see
    `PoolBM25` for its scale). Without vectors, or without time to make them, BM25 scores alone and
    the scores say so. A score depends on the pool, so it must not be cached per text.
    """

    Options = SemanticBM25Options
    name = "semantic-bm25"
    pointwise = False
    # BM25 and cosines, both from 0 to 1; the words of a text are found in every language.
    info = ScorerInfo(name="semantic-bm25", score_scale="probability")

    @check_arguments
    def __init__(
        self,
        semantic_weight: float = 0.7,
        bm25_weight: float = 0.3,
        *,
        embedder: Embedder | None = None,
        k1: float = POOL.k1,
        b: float = POOL.b,
        language: str = "auto",
        vector_key: str = "vector",
    ) -> None:
        total = _total(semantic_weight, bm25_weight)
        self.semantic_weight = semantic_weight / total
        self.bm25_weight = bm25_weight / total
        self._embedder = embedder
        self._bm25 = PoolBM25(k1=k1, b=b, language=language)
        self._vector_key = vector_key
        self._vectors: dict[str, Vector] = {}
        # Local embedding has no round trip: only the measured time per text decides.
        self._budget = Budget(0.0, 0.02, reserve_s=0.01)

    def __repr__(self) -> str:
        with_model = "" if self._embedder is None else ", with embedder"
        return f"SemanticBM25Reranker({self.semantic_weight:.3g}, {self.bm25_weight:.3g}{with_model})"

    async def score(
        self,
        query: str,
        hits: Sequence[Hit],
        *,
        deadline: Deadline,
        query_vector: Vector | None = None,
    ) -> Scores:
        """Return one score per hit; `query_vector` is compared with the vectors that the hits carry."""
        texts = [hit.text for hit in hits]
        if sum(map(len, texts)) > INLINE_CHARACTERS:
            lexical = await asyncio.to_thread(self._bm25.scores, query, texts)
        else:
            lexical = self._bm25.scores(query, texts)
        if self.semantic_weight == 0.0:
            return Scores(lexical, self.name, scorer=self.info, note="BM25 alone: semantic_weight is 0")
        try:
            semantic = await self._cosines(query, hits, deadline, query_vector)
        except Exception as exc:
            # The text of a stranger's exception may quote a document; its type cannot.
            cause = redacted(exc)
            reason = f"BM25 alone: {cause}"
            return Scores(lexical, self.name, scorer=self.info, degraded=True, reason=reason, note=reason)
        if semantic is None:
            return Scores(lexical, self.name, scorer=self.info, note="BM25 alone: no vectors and no embedder")
        blended = [
            self.semantic_weight * max(0.0, cosine) + self.bm25_weight * word
            for cosine, word in zip(semantic, lexical, strict=True)
        ]
        return Scores(
            blended,
            self.name,
            note=f"{self.semantic_weight:.2g} cosine + {self.bm25_weight:.2g} BM25",
            scorer=self.info,
        )

    async def fuse(
        self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None
    ) -> list[Hit]:
        """Pool the lists by reciprocal rank and return the k that score best."""
        return await fuse_then_rescore(self, per_store, k=k, query=query)

    async def _cosines(
        self, query: str, hits: Sequence[Hit], deadline: Deadline, query_vector: Vector | None
    ) -> list[float] | None:
        given = [hit.metadata.get(self._vector_key) for hit in hits]
        missing = [hit.text for hit, vector in zip(hits, given, strict=True) if vector is None]
        if self._embedder is not None:
            new = [text for text in dict.fromkeys(missing) if text not in self._vectors]
            if new or query_vector is None:
                query_vector = await self._embed(self._embedder, query, new, deadline, query_vector)
        elif missing:
            return None
        if query_vector is None:
            return None
        vectors = [
            self._vectors.get(hit.text) if vector is None else vector
            for hit, vector in zip(hits, given, strict=True)
        ]
        found = cosines(query_vector, vectors)
        self._forget()
        return found

    async def _embed(
        self,
        embedder: Embedder,
        query: str,
        texts: list[str],
        deadline: Deadline,
        query_vector: Vector | None,
    ) -> Vector:
        if not self._budget.allows(len(texts) + 1, deadline):
            raise ResiftError(f"no time to embed {len(texts) + 1} texts")
        started_s = deadline.clock()
        async with asyncio.timeout(deadline.reserve(self._budget.reserve_s).timeout_s):
            if query_vector is None:
                query_vector = (await embedder.embed([query], kind="query"))[0]
            if texts:
                made = await embedder.embed(texts, kind="document")
                self._vectors.update(zip(texts, made, strict=True))
        self._budget.record(len(texts) + 1, deadline.clock() - started_s)
        return query_vector

    def _forget(self) -> None:
        for text in list(self._vectors)[: max(0, len(self._vectors) - CACHED_VECTORS)]:
            self._vectors.pop(text, None)


def _total(semantic_weight: float, bm25_weight: float) -> float:
    for name, weight in (("semantic_weight", semantic_weight), ("bm25_weight", bm25_weight)):
        if isinstance(weight, bool) or not math.isfinite(weight) or weight < 0:
            raise InputError(f"{name} is {weight}; pass a number ≥ 0.")
    total = semantic_weight + bm25_weight
    if total <= 0:
        raise InputError("semantic_weight and bm25_weight are both 0; at least one must be above 0.")
    return total
