"""MemoryStore: the plain reference that every other store is compared with. Exact, small, not durable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

from resift._internal.arrays import Array
from resift.errors import InputError
from resift.external.candidates import Candidate
from resift.protocols import Embedder
from resift.ranking.context import sort_chunks
from resift.stores.base import (
    HYBRID_DEPTH,
    Match,
    Mode,
    Side,
    StoreView,
    deprecated_name,
    embed_texts,
    fuse_views,
    is_empty_search,
    read_documents,
    read_ids,
    resolve_mode,
    select_by_ids,
    top_k,
)
from resift.stores.filters import explain_filter, parse_filter, passes_all
from resift.text import Analyzer
from resift.text.analysis import BM25, idf
from resift.types import Hit, Where
from resift.validation import check_text


class MemoryStore:
    """Documents in a dict: exact cosine in vector mode, BM25 in text mode, RRF(60) of both in hybrid mode.

    Without an embedder the mode is "text"; with one the default is "vector".
    """

    def __init__(
        self,
        embedder: Embedder | None = None,
        *,
        name: str = "memory",
        mode: Mode | None = None,
        language: str = "auto",
    ) -> None:
        self.name = check_text(name, "name")
        self.embedder = embedder
        self.mode: Mode = resolve_mode(mode, embedder, default="vector")
        self._documents: dict[str, Hit] = {}
        self._vectors: dict[str, Array] = {}
        self._terms: dict[str, Counter[str]] = {}
        self._analyzer = Analyzer(check_text(language, "language"))
        self._languages: set[str] = set()

    @property
    def text(self) -> StoreView:
        """Keyword search of the same documents, as a store."""
        return StoreView(self, "text", partial(self.search_side, "text"))

    @property
    def vectors(self) -> StoreView:
        """Vector search of the same documents, as a store."""
        if self.embedder is None:
            raise InputError(f"Store {self.name!r} has no embedder, so it cannot search by vectors.")
        return StoreView(self, "vectors", partial(self.search_side, "vectors"))

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those with the same id; return the number of documents given."""
        hits = read_documents(documents)
        if self.embedder is not None and hits:
            texts = [hit.text for hit in hits]
            rows = await embed_texts(self.embedder, texts, kind="document", store=self.name)
            self._vectors.update(zip((hit.id for hit in hits), rows, strict=True))
        for hit in hits:
            self._documents[hit.id] = Hit(hit.id, hit.text, source=self.name, metadata=dict(hit.metadata))
            analysis = self._analyzer.analyze(hit.text)
            self._terms[hit.id] = Counter(analysis.terms)
            self._languages |= analysis.languages
        return len(hits)

    async def delete(self, ids: Iterable[str]) -> int:
        """Remove documents; return how many existed."""
        known = [id for id in read_ids(ids) if id in self._documents]
        for id in known:
            del self._documents[id], self._terms[id]
            self._vectors.pop(id, None)
        return len(known)

    async def get(self, ids: Iterable[str]) -> list[Hit]:
        """Return the documents in the order of the ids; unknown ids are skipped."""
        return select_by_ids(read_ids(ids), self._documents)

    async def get_vectors(self, ids: Iterable[str]) -> Mapping[str, Array]:
        """Return id -> unit vector of the documents that have one."""
        return {id: self._vectors[id] for id in read_ids(ids) if id in self._vectors}

    vectors_of = deprecated_name("vectors_of", get_vectors)

    async def get_chunks(self, hit: Hit, *, before: int, after: int) -> list[Hit]:
        """Return the chunks around a hit in the order of its document, with the hit."""
        return sort_chunks(hit, self._documents.values(), before=before, after=after)

    async def count(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    async def explain_filter(self, where: Where) -> dict[str, str]:
        """Return key -> note for each condition of a filter that no document passes."""
        return explain_filter(where, [hit.metadata for hit in self._documents.values()])

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits whose metadata passes `where`, best first."""
        if self.mode == "text":
            return await self.search_side("text", query, k=k, where=where, source=self.name)
        if self.mode == "vector":
            return await self.search_side("vectors", query, k=k, where=where, source=self.name)
        depth = max(k, HYBRID_DEPTH) if k else 0
        text = await self.text.search(query, k=depth, where=where)
        vectors = await self.vectors.search(query, k=depth, where=where)
        return fuse_views([text, vectors], k=k, source=self.name)

    async def search_side(
        self, side: Side, query: str, *, k: int, where: Where | None, source: str
    ) -> list[Hit]:
        """Search by keywords or by vectors alone."""
        if is_empty_search(query, k, where):
            return []
        scores = self._score_terms(query) if side == "text" else await self._score_vectors(query)
        tests = parse_filter(where)
        matches = (
            Match(id, hit.text, score, hit.metadata)
            for id, score in scores.items()
            if passes_all((hit := self._documents[id]).metadata, tests)
        )
        return top_k(matches, k=k, source=source)

    async def close(self) -> None:
        """Do nothing; all stores have this method."""

    async def _score_vectors(self, query: str) -> dict[str, float]:
        assert self.embedder is not None  # noqa: S101 - resolve_mode refuses vector mode without one
        rows = await embed_texts(self.embedder, [query], kind="query", store=self.name)
        # Float64 as in all stores: the order of a float32 sum must not decide between near-equal scores.
        vector = rows[0].astype("float64")
        return {id: float(self._vectors[id].astype("float64") @ vector) for id in self._documents}

    def _score_terms(self, query: str) -> dict[str, float]:
        lengths = {id: counts.total() for id, counts in self._terms.items()}
        mean = sum(lengths.values()) / max(1, len(lengths)) or 1.0
        model = BM25()
        scores: dict[str, float] = {}
        for word in self._analyzer.query_words(query, languages=self._languages):
            counted = {id: sum(counts[term] for term in word) for id, counts in self._terms.items()}
            containing = {id: count for id, count in counted.items() if count}
            rarity = idf(len(self._terms), len(containing))
            for id, count in containing.items():
                weight = model.weight(count, lengths[id], idf=rarity, mean_length=mean)
                scores[id] = scores.get(id, 0.0) + weight
        return scores
