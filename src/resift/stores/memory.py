"""MemoryStore: exact search in memory, not durable. The other stores are tested against it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from resift._internal.arrays import Array
from resift.external.candidates import Candidate
from resift.protocols import Embedder
from resift.ranking.context import sort_chunks
from resift.stores import base, filters
from resift.stores.base import Match, Mode, Side
from resift.text import Analyzer
from resift.text.analysis import BM25, idf
from resift.types import Hit, Where
from resift.validation import check_text


class MemoryStore(base.HybridStore):
    """Documents in a dict: exact cosine (the default with an embedder), BM25 in text mode, or RRF(60) of both."""

    def __init__(
        self,
        embedder: Embedder | None = None,
        *,
        name: str = "memory",
        mode: Mode | None = None,
        language: str = "auto",
    ) -> None:
        self.name, self.embedder = check_text(name, "name"), embedder
        self.mode: Mode = base.resolve_mode(mode, embedder, default="vector")
        self._documents: dict[str, Hit] = {}
        self._vectors: dict[str, Array] = {}
        self._terms: dict[str, Counter[str]] = {}
        self._analyzer = Analyzer(check_text(language, "language"))
        self._languages: set[str] = set()

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those with the same id; return the number of documents passed."""
        hits = base.read_documents(documents)
        if self.embedder is not None and hits:
            texts = [hit.text for hit in hits]
            rows = await base.embed_texts(self.embedder, texts, kind="document", store=self.name)
            self._vectors.update(zip((hit.id for hit in hits), rows, strict=True))
        for hit in hits:
            self._documents[hit.id] = Hit(hit.id, hit.text, source=self.name, metadata=dict(hit.metadata))
            analysis = self._analyzer.analyze(hit.text)
            self._terms[hit.id] = Counter(analysis.terms)
            self._languages |= analysis.languages
        return len(hits)

    async def delete(self, ids: Iterable[str]) -> int:
        """Remove documents; return how many existed."""
        known = [id for id in base.read_ids(ids) if id in self._documents]
        for id in known:
            del self._documents[id], self._terms[id]
            self._vectors.pop(id, None)
        return len(known)

    async def get(self, ids: Iterable[str]) -> list[Hit]:
        """Return the documents in the order of the ids; unknown ids are skipped."""
        return base.select_by_ids(base.read_ids(ids), self._documents)

    async def get_vectors(self, ids: Iterable[str]) -> Mapping[str, Array]:
        """Return id -> unit vector for the documents that have one."""
        return {id: self._vectors[id] for id in base.read_ids(ids) if id in self._vectors}

    vectors_of = base.deprecated_name("vectors_of", get_vectors)

    async def get_chunks(self, hit: Hit, *, before: int, after: int) -> list[Hit]:
        """Return the hit and the chunks around it, in document order."""
        return sort_chunks(hit, self._documents.values(), before=before, after=after)

    async def count(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    async def explain_filter(self, where: Where) -> dict[str, str]:
        """Return key -> note for each condition of a filter that no document passes."""
        return filters.explain_filter(where, [hit.metadata for hit in self._documents.values()])

    async def search_side(self, side: Side, query: str, *, k: int, where: Where | None, source: str) -> list[Hit]:
        """Search one side only: keywords or vectors."""
        if base.is_empty_search(query, k, where):
            return []
        if side == "text":
            words = self._analyzer.query_words(query, languages=self._languages)
            scored = zip(self._terms, score_terms(words, list(self._terms.values())), strict=True)
            scores = {id: score for id, score in scored if score}
        else:
            assert self.embedder is not None  # noqa: S101 - resolve_mode rejects vector mode without one
            rows = await base.embed_texts(self.embedder, [query], kind="query", store=self.name)
            # Use float64 as in all stores, so that summation order does not decide between near-equal scores.
            vector = rows[0].astype("float64")
            scores = {id: float(self._vectors[id].astype("float64") @ vector) for id in self._documents}
        tests = filters.parse_filter(where)
        matches = (
            Match(id, hit.text, score, hit.metadata)
            for id, score in scores.items()
            if filters.passes_all((hit := self._documents[id]).metadata, tests)
        )
        return base.top_k(matches, k=k, source=source)

    async def close(self) -> None:
        """Do nothing; exists because all stores have this method."""


def score_terms(words: Iterable[Sequence[str]], documents: Sequence[Mapping[str, float]]) -> list[float]:
    """Return the BM25 score of each document (term -> count). A word of the query is a list of alternative terms."""
    lengths = [math.fsum(counts.values()) for counts in documents]
    mean = math.fsum(lengths) / max(1, len(lengths)) or 1.0
    model = BM25()
    scores = [0.0] * len(documents)
    for word in words:
        tf_by_document = [sum(counts.get(term, 0) for term in word) for counts in documents]
        rarity = idf(len(documents), sum(tf > 0 for tf in tf_by_document))
        for i, tf in enumerate(tf_by_document):
            if tf:
                scores[i] += model.weight(tf, lengths[i], idf=rarity, mean_length=mean)
    return scores
