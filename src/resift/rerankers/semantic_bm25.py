"""Fallback tier: a 70/30 blend of cosine and pool-relative BM25 (Robertson et al., 1994), or BM25 alone."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from typing import NamedTuple

from resift._internal.arrays import Array, np
from resift.deadline import Deadline
from resift.errors import InputError, ResiftError, redact
from resift.models.embedder import EmbedderOptions, embedding_models
from resift.models.registry import pin_advice
from resift.protocols import Embedder
from resift.rerankers.rescore import FusesThenScores
from resift.resilience.budget import Budget
from resift.text.analysis import POOL, Analyzer
from resift.types import Hit, ScorerInfo, Scores
from resift.validation import check_arguments, is_finite_number, option

CACHED_TEXTS = 2048  # maximum number of texts with cached word counts or vectors; the oldest are dropped first

INLINE_CHARACTERS = 300_000
"""A pool with more characters is scored in a worker thread, so that the event loop is not blocked."""

Vector = Sequence[float] | Array


@dataclass(frozen=True, kw_only=True)
class SemanticBM25Options(EmbedderOptions):
    """Options of `semantic-bm25` in a pipeline file."""

    semantic_weight: float = option("Weight of the cosine.", default=0.7, min=0)
    bm25_weight: float = option("Weight of BM25.", default=0.3, min=0)
    embedder: str | None = option(
        "Embedding model for the cosine; default: only BM25.", default=None, choices=embedding_models, advice=pin_advice
    )


class SemanticBM25Reranker(FusesThenScores):
    """Scores by `(semantic_weight × max(0, cosine) + bm25_weight × BM25) / total`, from 0 to 1.

    Vectors come from `hit.metadata["vector"]` or the embedder. Without vectors, or without time to compute them, only
    `PoolBM25` is used, and the note reports it. A score depends on the pool, so it must not be cached per text.
    """

    Options = SemanticBM25Options
    name = "semantic-bm25"
    pointwise = False
    # Both parts range from 0 to 1, and BM25 works in every language.
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
        for name, weight in (("semantic_weight", semantic_weight), ("bm25_weight", bm25_weight)):
            if not is_finite_number(weight) or weight < 0:
                raise InputError(f"{name} is {weight}; pass a number of 0 or more.")
        total = semantic_weight + bm25_weight
        if total <= 0:
            raise InputError("semantic_weight and bm25_weight are both 0; at least one must be above 0.")
        self.semantic_weight = semantic_weight / total
        self.bm25_weight = bm25_weight / total
        self._embedder = embedder
        self._bm25 = PoolBM25(k1=k1, b=b, language=language)
        self._vector_key = vector_key
        self._vectors: dict[str, Vector] = {}
        # Local embedding has no round trip, so only the measured time per text matters.
        self._budget = Budget(0.0, 0.02, reserve_s=0.01)

    def __repr__(self) -> str:
        embedder = "" if self._embedder is None else ", with embedder"
        return f"SemanticBM25Reranker({self.semantic_weight:.3g}, {self.bm25_weight:.3g}{embedder})"

    async def score(
        self, query: str, hits: Sequence[Hit], *, deadline: Deadline, query_vector: Vector | None = None
    ) -> Scores:
        """Return one score per hit; `query_vector` is compared to the vectors in the hits' metadata."""
        texts = [hit.text for hit in hits]
        if sum(map(len, texts)) > INLINE_CHARACTERS:
            lexical = await asyncio.to_thread(self._bm25.scores, query, texts)
        else:
            lexical = self._bm25.scores(query, texts)
        if self.semantic_weight == 0.0:
            return Scores(lexical, self.name, scorer=self.info, note="BM25 alone: semantic_weight is 0")
        try:
            semantic = await self._compute_cosines(query, hits, deadline, query_vector)
        except Exception as exc:
            # The message of a third-party exception may quote a document, so `redact` shows only its type.
            reason = f"BM25 alone: {redact(exc)}"
            return Scores(lexical, self.name, scorer=self.info, degraded=True, reason=reason, note=reason)
        if semantic is None:
            return Scores(lexical, self.name, scorer=self.info, note="BM25 alone: no vectors and no embedder")
        blended = [
            self.semantic_weight * max(0.0, cosine) + self.bm25_weight * bm25
            for cosine, bm25 in zip(semantic, lexical, strict=True)
        ]
        note = f"{self.semantic_weight:.2g} cosine + {self.bm25_weight:.2g} BM25"
        return Scores(blended, self.name, note=note, scorer=self.info)

    async def _compute_cosines(
        self, query: str, hits: Sequence[Hit], deadline: Deadline, query_vector: Vector | None
    ) -> list[float] | None:
        """Return one cosine per hit, or None if vectors are missing and there is no embedder."""
        stored = [hit.metadata.get(self._vector_key) for hit in hits]
        missing = [hit.text for hit, vector in zip(hits, stored, strict=True) if vector is None]
        if self._embedder is not None:
            new = [text for text in dict.fromkeys(missing) if text not in self._vectors]
            if new or query_vector is None:
                query_vector = await self._embed(self._embedder, query, new, deadline, query_vector)
        elif missing:
            return None
        if query_vector is None:
            return None
        vectors = [
            self._vectors.get(hit.text) if vector is None else vector for hit, vector in zip(hits, stored, strict=True)
        ]
        values = cosines(query_vector, vectors)
        for text in list(self._vectors)[: max(0, len(self._vectors) - CACHED_TEXTS)]:
            self._vectors.pop(text, None)
        return values

    async def _embed(
        self, embedder: Embedder, query: str, texts: list[str], deadline: Deadline, query_vector: Vector | None
    ) -> Vector:
        """Add the vectors of the texts to the cache, and return the query's vector."""
        if not self._budget.allows(len(texts) + 1, deadline):
            raise ResiftError(f"no time to embed {len(texts) + 1} texts")
        started_s = deadline.clock()
        async with asyncio.timeout(deadline.reserve(self._budget.reserve_s).timeout_s):
            if query_vector is None:
                query_vector = (await embedder.embed([query], kind="query"))[0]
            if texts:
                self._vectors.update(zip(texts, await embedder.embed(texts, kind="document"), strict=True))
        self._budget.record(len(texts) + 1, deadline.clock() - started_s)
        return query_vector


class _TermCounts(NamedTuple):
    terms: Mapping[str, int]
    length: int
    languages: frozenset[str]


class PoolBM25:
    """Scores texts from 0 to 1 by how much of the query's information they cover.

    The score is BM25 divided by the maximum that any text could reach for this query: about 0.4 if each query word
    occurs once in a text of average length. It does not reach 1 just because the rest of the pool is worse.
    """

    def __init__(self, *, k1: float = POOL.k1, b: float = POOL.b, language: str = "auto") -> None:
        if not (math.isfinite(k1) and k1 >= 0):
            raise InputError(f"k1 is {k1}; pass a number of 0 or more, such as 1.5.")
        if not 0 <= b <= 1:
            raise InputError(f"b is {b}; pass a number from 0 to 1, such as 0.75.")
        self.k1 = k1
        self.b = b
        self._analyzer = Analyzer(language)
        self._cached_counts = lru_cache(CACHED_TEXTS)(self._count_terms)

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return one score per text; idf and average length are computed from the texts."""
        documents = [self._cached_counts(text) for text in texts]
        languages = frozenset[str]().union(*(document.languages for document in documents))
        # "cell" and "cells" in the same query count as one word.
        words = list(dict.fromkeys(self._analyzer.query_words(query, languages=languages)))
        if not words or not texts:
            return [0.0] * len(texts)
        # The average is 0 if none of the texts contains a word.
        average = sum(document.length for document in documents) / len(texts) or 1.0
        norms = [self.k1 * (1 - self.b + self.b * document.length / average) for document in documents]
        parts: list[list[float]] = [[] for _ in documents]
        weights: list[float] = []
        for spellings in words:
            rows = [[document.terms.get(term, 0) for document in documents] for term in spellings]
            counts = rows[0] if len(rows) == 1 else [sum(column) for column in zip(*rows, strict=True)]
            # A word that no text contains counts as if one text contained it, so its absence lowers all scores.
            document_frequency = max(sum(map(bool, counts)), 1)
            weight = math.log(1 + (len(texts) - document_frequency + 0.5) / (document_frequency + 0.5))
            weights.append(weight)
            for part, count, norm in zip(parts, counts, norms, strict=True):
                if count:
                    part.append(weight * count / (count + norm))
        maximum = math.fsum(weights)
        return [min(1.0, math.fsum(part) / maximum) for part in parts]

    def _count_terms(self, text: str) -> _TermCounts:
        analyzed = self._analyzer.analyze(text)
        return _TermCounts(Counter(analyzed.terms), len(analyzed.terms), analyzed.languages)


def cosines(query: Vector, vectors: Sequence[Vector | None]) -> list[float]:
    """Return the cosine of the query with each vector, 0 for length 0; InputError if one cannot be compared."""
    matching = [vector for vector in vectors if vector is not None and len(vector) == len(query)]
    if len(matching) < len(vectors):
        raise InputError(f"vectors differ in length; the query's vector has {len(query)} values.")
    if hasattr(query, "dtype"):
        matrix = np.asarray([np.asarray(vector, dtype=np.float64) for vector in matching])
        row = np.asarray(query, dtype=np.float64)
        # Rows are summed separately, because a matrix product may round differently for another number of rows.
        dots = (matrix * row).sum(axis=1) if matching else np.zeros(0)
        norms = np.sqrt((matrix * matrix).sum(axis=1)) * math.sqrt(float((row * row).sum()))
        values: list[float] = np.divide(dots, norms, out=np.zeros_like(dots), where=norms != 0).tolist()
    else:
        query_norm = math.hypot(*query)
        lengths = [query_norm * math.hypot(*vector) for vector in matching]
        values = [
            sum(map(mul, query, vector)) / length if length else 0.0
            for vector, length in zip(matching, lengths, strict=True)
        ]
    if not all(map(math.isfinite, values)):
        raise InputError("a vector contains a value that is not a finite number.")
    # Rounding errors can exceed the range slightly.
    return [max(-1.0, min(1.0, value)) for value in values]
