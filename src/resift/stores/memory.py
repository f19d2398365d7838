"""MemoryStore: the plain reference that every other store is compared with. Exact, small, not durable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Literal

from resift.errors import InputError
from resift.external.candidates import Candidate
from resift.protocols import Embedder
from resift.stores.documents import Found, documents_from, ids_from, in_order, nothing_to_find, ranked
from resift.stores.embedding import unit_vectors
from resift.stores.filtering import explain_filter, matches
from resift.stores.hybrid import DEPTH, Side, StoreView, fuse_views
from resift.text import Analyzer
from resift.text.bm25 import BM25, idf
from resift.types import Hit, JsonObject, Where
from resift.validation import check_text

Mode = Literal["hybrid", "text", "vector"]


class MemoryStore:
    """Documents in a dict: exact cosine in vector mode, BM25 in text mode, RRF(60) of both in hybrid.

    Without an embedder the mode is "text"; with one it is "vector" unless told otherwise.
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
        self._vectors: JsonObject = {}
        self._terms: dict[str, Counter[str]] = {}
        self._analyzer = Analyzer(check_text(language, "language"))
        self._languages: set[str] = set()

    @property
    def text(self) -> StoreView:
        """The same documents found by words only, as a store of its own."""
        return StoreView(self, "text", partial(self.search_side, "text"))

    @property
    def vectors(self) -> StoreView:
        """The same documents found by vectors only, as a store of its own."""
        if self.embedder is None:
            raise InputError(f"Store {self.name!r} has no embedder, so it cannot search by vectors.")
        return StoreView(self, "vectors", partial(self.search_side, "vectors"))

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those of the same id; return how many were given."""
        given = documents_from(documents)
        if self.embedder is not None and given:
            texts = [hit.text for hit in given]
            rows = await unit_vectors(self.embedder, texts, kind="document", store=self.name)
            self._vectors.update(zip((hit.id for hit in given), rows, strict=True))
        for hit in given:
            self._documents[hit.id] = Hit(hit.id, hit.text, source=self.name, metadata=dict(hit.metadata))
            analysis = self._analyzer.analyze(hit.text)
            self._terms[hit.id] = Counter(analysis.terms)
            self._languages |= analysis.languages
        return len(given)

    async def delete(self, ids: Iterable[str]) -> int:
        """Remove documents; return how many were there."""
        gone = [id for id in ids_from(ids) if id in self._documents]
        for id in gone:
            del self._documents[id], self._terms[id]
            self._vectors.pop(id, None)
        return len(gone)

    async def get(self, ids: Iterable[str]) -> list[Hit]:
        """Return the documents of these ids in the order asked; unknown ids are left out."""
        return in_order(ids_from(ids), self._documents)

    async def vectors_of(self, ids: Iterable[str]) -> JsonObject:
        """Return id -> unit vector of the documents that have one."""
        return {id: self._vectors[id] for id in ids_from(ids) if id in self._vectors}

    async def count(self) -> int:
        """Return how many documents there are."""
        return len(self._documents)

    async def explain_filter(self, where: Where) -> dict[str, str]:
        """Return key -> note for each test of a filter that no document passes."""
        return explain_filter(where, [hit.metadata for hit in self._documents.values()])

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata passes `where`."""
        if self.mode == "text":
            return await self.search_side("text", query, k=k, where=where, source=self.name)
        if self.mode == "vector":
            return await self.search_side("vectors", query, k=k, where=where, source=self.name)
        depth = max(k, DEPTH) if k else 0
        text = await self.text.search(query, k=depth, where=where)
        return fuse_views(
            [text, await self.vectors.search(query, k=depth, where=where)], k=k, source=self.name
        )

    async def search_side(
        self, side: Side, query: str, *, k: int, where: Where | None, source: str
    ) -> list[Hit]:
        """Search by words or by vectors alone."""
        if nothing_to_find(query, k, where):
            return []
        found = self._by_words(query, where) if side == "text" else await self._by_vector(query, where)
        return ranked(found, k=k, source=source)

    async def close(self) -> None:
        """Nothing to release; here so that all stores can be treated alike."""

    async def _by_vector(self, query: str, where: Where | None) -> list[Found]:
        assert self.embedder is not None  # noqa: S101 - resolve_mode refuses vector mode without one
        rows = await unit_vectors(self.embedder, [query], kind="query", store=self.name)
        # In doubles, as all stores: in what order an engine adds must not decide between near equals.
        asked = rows[0].astype("float64")
        return [
            Found(id, hit.text, float(self._vectors[id].astype("float64") @ asked), hit.metadata)
            for id, hit in self._documents.items()
            if matches(hit.metadata, where)
        ]

    def _by_words(self, query: str, where: Where | None) -> list[Found]:
        scores = self._bm25(self._analyzer.query_words(query, languages=self._languages))
        return [
            Found(id, self._documents[id].text, score, self._documents[id].metadata)
            for id, score in scores.items()
            if matches(self._documents[id].metadata, where)
        ]

    def _bm25(self, asked: list[tuple[str, ...]]) -> dict[str, float]:
        lengths = {id: counts.total() for id, counts in self._terms.items()}
        mean = sum(lengths.values()) / max(1, len(lengths)) or 1.0
        model = BM25()
        scores: dict[str, float] = {}
        for word in asked:
            counted = {id: sum(counts[term] for term in word) for id, counts in self._terms.items()}
            holding = {id: count for id, count in counted.items() if count}
            rarity = idf(len(self._terms), len(holding))
            for id, tf in holding.items():
                weight = model.weight(tf, lengths[id], idf=rarity, mean_length=mean)
                scores[id] = scores.get(id, 0.0) + weight
        return scores


def resolve_mode(mode: Mode | None, embedder: Embedder | None, *, default: Mode) -> Mode:
    """Return the mode to work in; a mode that needs vectors needs an embedder."""
    if mode is None:
        return "text" if embedder is None else default
    if mode not in ("hybrid", "text", "vector"):
        raise InputError(f"mode is {mode!r}; pass 'hybrid', 'text' or 'vector'.")
    if mode != "text" and embedder is None:
        raise InputError(f"mode {mode!r} needs vectors: pass embedder=, or use mode='text'.")
    return mode
