"""Test kit for code that uses or extends Resift: fakes, a clock, and checks that raise AssertionError with a reason."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from resift._internal.sync import run_sync
from resift.deadline import Deadline
from resift.errors import InputError, ProviderServerError, StoreError
from resift.external.candidates import Candidate, read_hits
from resift.protocols import DocStore, Reranker, Scorer, declared_name, describe_scorer
from resift.types import Hit, JsonObject, ScorerInfo, Scores, Where, sort_key
from resift.validation import check_k


def words(text: str) -> set[str]:
    """Return the lower-case words of a text."""
    return {"".join(filter(str.isalnum, word)) for word in text.casefold().split()} - {""}


class FakeStore:
    """A store that finds documents by shared words. `fails` makes it raise, `hangs` makes it never return."""

    def __init__(
        self, documents: Sequence[Candidate] = (), *, name: str = "fake", fails: bool = False, hangs: bool = False
    ) -> None:
        self.name = name
        self.queries: list[str] = []
        self._hits, self._fails, self._hangs = read_hits(documents, source=name), fails, hangs

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits that share a word with the query."""
        check_k(k)
        self.queries.append(query)
        if self._hangs:
            await asyncio.Event().wait()
        if self._fails:
            raise StoreError(f"{self.name} is down", store=self.name, transient=True)
        query_words = words(query)
        scored = [
            replace(hit, score=float(len(query_words & words(hit.text))))
            for hit in self._hits
            if query_words & words(hit.text)
            and all(hit.metadata.get(key) == value for key, value in (where or {}).items())
        ]
        return sorted(scored, key=lambda hit: (-(hit.score or 0.0), hit.id))[:k]


class OverlapScorer:
    """A fast, deterministic scorer that counts the words a text shares with the query."""

    pointwise = True

    def __init__(self, name: str = "overlap", *, fails: bool = False) -> None:
        self.name = name
        self.calls = 0
        self._fails = fails

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return the number of shared words per hit, or raise ProviderServerError with `fails`."""
        self.calls += 1
        if self._fails:
            raise ProviderServerError(f"{self.name} failed", provider=self.name, status=500)
        query_words = words(query)
        return Scores([float(len(query_words & words(hit.text))) for hit in hits], self.name)


class FakeClock:
    """A monotonic clock that moves only when `advance` is called; pass it as any `clock` argument."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self.now_s = start_s

    def __call__(self) -> float:
        """Return the current time in seconds."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        if seconds < 0:
            raise ValueError(f"advance({seconds}): a monotonic clock never goes back.")
        self.now_s += seconds


__all__ = ["FakeClock", "FakeStore", "OverlapScorer", "check_reranker", "check_scorer", "check_store"]

QUERY = "capital of France"

_TEXTS = {
    "paris": "Paris is the capital of France.",
    "lyon": "Lyon is known for its cheese.",
    "cell": "Mitochondria are the powerhouse of the cell.",
    "rome": "Rome is the capital of Italy.",
}
_DOCUMENTS: list[JsonObject] = [
    {"id": "paris", "text": _TEXTS["paris"], "metadata": {"kind": "city", "page": 1}},
    {"id": "rome", "text": _TEXTS["rome"], "metadata": {"kind": "city", "page": 2}},
    {"id": "cell", "text": _TEXTS["cell"], "metadata": {"kind": "biology"}},
]
_RANGES = {"probability": (0.0, 1.0), "cosine": (-1.0, 1.0)}


class WritableStore(DocStore, Protocol):
    """A store with the methods that `check_store` calls."""

    name: str

    async def add(self, documents: Sequence[JsonObject]) -> int:
        """Store documents and return their number."""

    async def get(self, ids: Sequence[str]) -> list[Hit]:
        """Return the documents with these ids."""

    async def delete(self, ids: Sequence[str]) -> int:
        """Delete documents and return the number of deleted documents."""

    async def count(self) -> int:
        """Return the number of documents."""


def sample_lists() -> list[list[Hit]]:
    """Return two ranked lists with a shared hit, a tie and a duplicate."""
    lexical = [Hit(id, _TEXTS[id], 2.0, "words", {"n": i}) for i, id in enumerate(["rome", "paris", "rome"])]
    dense = [Hit(id, _TEXTS[id], 0.5, "meaning", {"n": i}) for i, id in enumerate(["paris", "lyon", "cell"])]
    return [lexical, dense]


def check_reranker(reranker: Reranker, lists: Sequence[Sequence[Hit]] | None = None, *, query: str = QUERY) -> None:
    """Check that a reranker returns at most k hits from its input, unchanged and in a repeatable order."""
    per_store = [list(hits) for hits in (sample_lists() if lists is None else lists)]
    copy = [list(hits) for hits in per_store]
    input_ids = {hit.id for hits in per_store for hit in hits}
    _expect(isinstance(reranker, Reranker), "it has no `async def fuse(per_store, *, k, query=None)`")
    fused = run_sync(reranker.fuse(per_store, k=10, query=query))
    _expect(isinstance(fused, list), "fuse must return a list")
    _expect(all(isinstance(hit, Hit) for hit in fused), "fuse must return Hits")
    ids = [hit.id for hit in fused]
    _expect(set(ids) <= input_ids, f"fuse returned unknown ids: {sorted(set(ids) - input_ids)}")
    _expect(len(ids) == len(set(ids)), "fuse returned an id twice")
    _expect(per_store == copy, "fuse changed its input")
    repeated = run_sync(reranker.fuse(per_store, k=10, query=query))
    _expect(repeated == fused, "the same input gave a different result")
    for k in (0, 1, 2):
        hits = run_sync(reranker.fuse(per_store, k=k, query=query))
        _expect(len(hits) <= k, f"fuse returned more than k={k} hits")
    _expect(run_sync(reranker.fuse([], k=3, query=query)) == [], "fuse must return no hits for no lists")
    try:
        run_sync(reranker.fuse(per_store, k=-1, query=query))
    except InputError:
        return
    raise AssertionError("k < 0 must raise InputError")


def check_scorer(scorer: Scorer, *, query: str = QUERY) -> None:
    """Check that a scorer returns one finite score or None per hit, in order and repeatably.

    Scores must lie within the scale of its `info`, and a pointwise scorer must score a text alone as in a list.
    """
    hits = list({hit.id: hit for ranked in sample_lists() for hit in ranked}.values())
    _expect(isinstance(scorer, Scorer), "it has no `async def score(query, hits, *, deadline)`")
    _expect(bool(declared_name(scorer)), "it has no name")
    scores = run_sync(scorer.score(query, hits, deadline=Deadline.never()))
    _expect(isinstance(scores, Scores), "score must return Scores")
    values = scores.values
    _expect(len(values) == len(hits), f"{len(values)} scores for {len(hits)} hits")
    _expect(all(value is None or math.isfinite(value) for value in values), "scores must be finite or None")
    repeated = run_sync(scorer.score(query, hits, deadline=Deadline.never()))
    _expect(list(repeated.values) == list(values), "the same input gave different scores")
    declared = getattr(scorer, "info", None)
    _expect(declared is None or isinstance(declared, ScorerInfo), "info must be a resift.types.ScorerInfo")
    info = describe_scorer(scorer)
    name = declared_name(scorer)
    _expect(info.name == name, f"info.name is {info.name!r}, but the name of the scorer is {name!r}")
    low, high = _RANGES.get(info.score_scale, (-math.inf, math.inf))
    outside = [value for value in values if value is not None and not low <= value <= high]
    _expect(not outside, f"{info.score_scale} scores must be between {low} and {high}; found {outside}")
    for hit, value in zip(hits, values, strict=True) if info.pointwise else ():
        [alone] = run_sync(scorer.score(query, [hit], deadline=Deadline.never())).values
        # Rounding may differ between a batch and a single text.
        same = alone is value or (alone is not None and value is not None and abs(alone - value) <= 1e-3)
        _expect(same, f"a pointwise scorer gave {value} in a list and {alone} alone")


async def check_store(store: WritableStore) -> None:
    """Check an open, empty store: add, get, count, search, filter, update, delete, order and limits. Leave it empty."""
    _expect(bool(declared_name(store)), "a store needs a name")
    _expect(await store.count() == 0, "check_store needs an empty store")
    _expect(await store.search(QUERY, k=3) == [], "a search in an empty store must return no hits")
    _expect(await store.add(_DOCUMENTS) == 3, "add must return the number of documents")
    _expect(await store.count() == 3, "count must include the documents that were added")
    hits = await store.search(QUERY, k=3)
    _expect([hit.id for hit in hits][:1] == ["paris"], f"{QUERY!r} must find 'paris' first")
    _expect(all(hit.source == store.name for hit in hits), "a hit's source must be the store's name")
    keys = [sort_key(hit) for hit in hits]
    _expect(keys == sorted(keys), "hits must be sorted by (-score, id)")
    _expect(hits[0].text == _TEXTS["paris"], "search must return the text unchanged")
    _expect(hits[0].metadata["page"] == 1, "search must return the metadata unchanged")
    _expect(len(await store.search(QUERY, k=1)) == 1, "search must return at most k hits")
    _expect(await store.search(QUERY, k=0) == [], "k=0 must return no hits")
    _expect(await store.search("  ", k=3) == [], "a blank query must return no hits")
    _expect(await store.search(QUERY, k=3) == hits, "the same search must return the same hits")
    filtered = await store.search("capital cell", k=3, where={"kind": "biology"})
    _expect({hit.id for hit in filtered} <= {"cell"}, "where must filter by metadata")
    try:
        await store.search(QUERY, k=-1)
    except InputError:
        pass
    else:
        raise AssertionError("k < 0 must raise InputError")
    text = "Rome was not built in a day."
    await store.add([{"id": "rome", "text": text, "metadata": {"kind": "saying"}}])
    _expect(await store.count() == 3, "adding an existing id must replace the document")
    texts = [hit.text for hit in await store.get(["rome", "unknown"])]
    _expect(texts == [text], "get must return the updated text")
    _expect(await store.delete(["rome", "unknown"]) == 1, "delete must return the number of deleted documents")
    remaining = {hit.id for hit in await store.search("Rome", k=3)}
    _expect("rome" not in remaining, "search must not return a deleted document")
    await store.delete(["paris", "cell"])
    _expect(await store.count() == 0, "delete must remove all documents")


def _expect(condition: bool, rule: str) -> None:
    if not condition:
        raise AssertionError(rule)


def __getattr__(name: str) -> object:
    if name in ("ProviderServer", "FAULTS"):
        advice = "Start your own HTTP server that responds like the provider, and pass its address as base_url"
        raise ImportError(f"resift.testing.{name} of Resift 0.2 was removed. {advice}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
