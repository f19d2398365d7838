"""txtai: a similarity and a scorer for its `Reranker`, and a txtai index as a store. Duck types only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from resift.errors import InputError, ResiftError
from resift.integrations.external_store import ExternalStore, Found
from resift.protocols import Scorer
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.reranking import rerank
from resift.resilience import CircuitBreaker

Pairs = list[tuple[int, float]]


class ResiftSimilarity:
    """txtai's similarity pipeline: `(query, texts) -> [(index, score)]`, best first; lists give lists.

    Pass it to txtai's `Reranker(embeddings, similarity)`, or wherever a similarity callable is taken. A text
    without a score, for example after a deadline, comes last with the lowest score of the others. If no text
    has a score, it raises ResiftError with the reason: txtai's pairs have no place for it.
    """

    def __init__(
        self, model: str = DEFAULT_MODEL, *, scorer: Scorer | None = None, deadline_s: float | None = None
    ) -> None:
        self.model = model
        self.scorer = scorer
        self.deadline_s = deadline_s

    def __call__(
        self, query: str | Sequence[str], texts: Sequence[object], **_: object
    ) -> Pairs | list[Pairs]:
        """Score texts (strings, or txtai's (id, text, …) rows) for one query or several."""
        plain = [_text(one) for one in texts]
        if isinstance(query, str):
            return self._pairs(query, plain)
        return [self._pairs(one, plain) for one in query]

    def _pairs(self, query: str, texts: Sequence[str]) -> Pairs:
        ranking = rerank(query, list(texts), model=self.model, scorer=self.scorer, deadline_s=self.deadline_s)
        known = [score for score in ranking.scores() if score is not None]
        if texts and not known:
            raise ResiftError(f"No text was scored: {ranking.reason}")
        lowest = min(known, default=0.0)
        scores = [lowest if score is None else score for score in ranking.scores()]
        return list(zip(ranking.indices(), scores, strict=True))


@runtime_checkable
class Embeddings(Protocol):
    """What is needed of a txtai `Embeddings`: one search with a limit."""

    def search(self, query: str, limit: int) -> Sequence[Any]:
        """Return rows: dicts with id, text and score where content is stored, else (id, score)."""
        ...


def txtai_store(
    embeddings: Embeddings, *, name: str = "txtai", breaker: CircuitBreaker | None = None
) -> ExternalStore:
    """Return a store over a txtai index that keeps its content; torch is txtai's business, not ours."""
    if not isinstance(embeddings, Embeddings):
        raise InputError(f"A {type(embeddings).__name__} has no search; pass a txtai Embeddings.")

    async def fetch(query: str, k: int) -> Sequence[Found]:
        rows = await asyncio.to_thread(embeddings.search, query, k)
        return [_found(row) for row in rows]

    return ExternalStore(name, fetch, breaker=breaker)


def _found(row: Any) -> Found:
    if isinstance(row, Mapping):
        score = row.get("score")
        extra = {key: value for key, value in row.items() if key not in ("id", "text", "score")}
        return Found(
            str(row["id"]), str(row.get("text") or ""), None if score is None else float(score), extra
        )
    id, score = row[0], row[1]
    return Found(str(id), "", float(score), {})


def _text(row: Any) -> str:
    if isinstance(row, str):
        return row
    if isinstance(row, Mapping):
        return str(row.get("text") or "")
    return str(row[1])
