"""txtai: a similarity function for its `Reranker`, and a txtai index as a store. Does not import txtai."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from resift.errors import InputError, ResiftError
from resift.integrations.external_store import ExternalStore, Found
from resift.protocols import Scorer
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.reranking import rerank
from resift.resilience import CircuitBreaker
from resift.types import JsonValue

Scored = list[tuple[int, float]]


class ResiftSimilarity:
    """txtai's similarity pipeline: `(query, texts) -> [(index, score)]`, best first, or a list of these.

    Pass it to txtai's `Reranker(embeddings, similarity)`. An unscored text, for example after a deadline, ranks last
    with the lowest score of the others. If no text was scored, ResiftError is raised with the reason.
    """

    def __init__(
        self, model: str = DEFAULT_MODEL, *, scorer: Scorer | None = None, deadline_s: float | None = None
    ) -> None:
        self.model = model
        self.scorer = scorer
        self.deadline_s = deadline_s

    def __call__(self, query: str | Sequence[str], texts: Sequence[object], **_: object) -> Scored | list[Scored]:
        """Score texts (strings, or txtai's (id, text, …) rows) for one query or several."""
        plain = [_row_text(row) for row in texts]
        if isinstance(query, str):
            return self._score(query, plain)
        return [self._score(text, plain) for text in query]

    def _score(self, query: str, texts: list[str]) -> Scored:
        ranking = rerank(query, texts, model=self.model, scorer=self.scorer, deadline_s=self.deadline_s)
        known = [score for score in ranking.scores() if score is not None]
        if texts and not known:
            raise ResiftError(f"No text was scored: {ranking.reason}")
        lowest = min(known, default=0.0)
        scores = [lowest if score is None else score for score in ranking.scores()]
        return list(zip(ranking.indices(), scores, strict=True))


@runtime_checkable
class Embeddings(Protocol):
    """The methods of txtai's `Embeddings` that are used here."""

    def search(self, query: str, limit: int) -> Sequence[JsonValue]:
        """Return dicts with id, text and score if content is stored, otherwise (id, score) tuples."""


def txtai_store(embeddings: Embeddings, *, name: str = "txtai", breaker: CircuitBreaker | None = None) -> ExternalStore:
    """Return a store that uses a txtai index. The index must store its content."""
    if not isinstance(embeddings, Embeddings):
        raise InputError(f"A {type(embeddings).__name__} has no search; pass a txtai Embeddings.")

    async def fetch(query: str, k: int) -> Sequence[Found]:
        documents = []
        for row in await asyncio.to_thread(embeddings.search, query, k):
            if isinstance(row, Mapping):
                score = None if row.get("score") is None else float(row["score"])
                metadata = {key: value for key, value in row.items() if key not in ("id", "text", "score")}
                documents.append(Found(str(row["id"]), str(row.get("text") or ""), score, metadata))
            else:
                documents.append(Found(str(row[0]), "", float(row[1]), {}))
        return documents

    return ExternalStore(name, fetch, breaker=breaker)


def _row_text(row: JsonValue) -> str:
    if isinstance(row, str):
        return row
    return str(row.get("text") or "") if isinstance(row, Mapping) else str(row[1])
