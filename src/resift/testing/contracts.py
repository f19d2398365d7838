"""What every reranker, scorer and store must do. Plugin authors run these in their own tests.

Each check raises AssertionError with a sentence that says which rule was broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from resift.deadline import Deadline
from resift.errors import InputError
from resift.protocols import Reranker, Scorer, describe_scorer, own_name
from resift.types import Hit, ScorerInfo, Scores, by_score

T = TypeVar("T")

QUERY = "capital of France"

_RANGES = {"probability": (0.0, 1.0), "cosine": (-1.0, 1.0)}


def sample_lists() -> list[list[Hit]]:
    """Return two ranked lists with a shared hit, a tie and a duplicate."""
    text = {
        "paris": "Paris is the capital of France.",
        "lyon": "Lyon is known for its cheese.",
        "cell": "Mitochondria are the powerhouse of the cell.",
        "rome": "Rome is the capital of Italy.",
    }
    words = [
        Hit(id, text[id], 2.0, "words", {"n": rank}) for rank, id in enumerate(["rome", "paris", "rome"])
    ]
    meaning = [
        Hit(id, text[id], 0.5, "meaning", {"n": rank}) for rank, id in enumerate(["paris", "lyon", "cell"])
    ]
    return [words, meaning]


def check_reranker(
    reranker: Reranker, lists: Sequence[Sequence[Hit]] | None = None, *, query: str = QUERY
) -> None:
    """Check a reranker: at most k hits of the input, untouched; the same answer twice; k < 0 refused."""
    given = [list(hits) for hits in (sample_lists() if lists is None else lists)]
    before = [list(hits) for hits in given]
    known = {hit.id for hits in given for hit in hits}
    _expect(isinstance(reranker, Reranker), "it has no `async def fuse(per_store, *, k, query=None)`")
    fused = _run(reranker.fuse(given, k=10, query=query))
    _expect(isinstance(fused, list), "fuse must return a list")
    _expect(all(isinstance(hit, Hit) for hit in fused), "fuse must return Hits")
    ids = [hit.id for hit in fused]
    _expect(set(ids) <= known, f"fuse invented ids: {sorted(set(ids) - known)}")
    _expect(len(ids) == len(set(ids)), "fuse returned an id twice")
    _expect(given == before, "fuse changed its input")
    _expect(_run(reranker.fuse(given, k=10, query=query)) == fused, "the same input gave another result")
    for k in (0, 1, 2):
        _expect(len(_run(reranker.fuse(given, k=k, query=query))) <= k, f"fuse returned more than k={k} hits")
    _expect(_run(reranker.fuse([], k=3, query=query)) == [], "no lists must give no hits")
    _refuses(lambda: reranker.fuse(given, k=-1, query=query))


def check_scorer(scorer: Scorer, *, query: str = QUERY) -> None:
    """Check that a scorer gives one finite score or None per hit, in order, and the same ones twice.

    A scorer that describes itself (`info`, a `resift.types.ScorerInfo`) must keep to its description: scores
    within the declared scale, and, if it is pointwise, the same score for a text on its own.
    """
    hits = list({hit.id: hit for ranked in sample_lists() for hit in ranked}.values())
    _expect(isinstance(scorer, Scorer), "it has no `async def score(query, hits, *, deadline)`")
    _expect(bool(own_name(scorer)), "it has no name")
    first = _run(scorer.score(query, hits, deadline=Deadline.never()))
    _expect(isinstance(first, Scores), "score must return Scores")
    _expect(len(first.values) == len(hits), f"{len(first.values)} scores for {len(hits)} hits")
    finite = all(value is None or abs(value) < float("inf") for value in first.values)
    _expect(finite, "scores must be finite or None")
    again = _run(scorer.score(query, hits, deadline=Deadline.never()))
    _expect(list(again.values) == list(first.values), "the same input gave other scores")
    _check_description(scorer, query, hits, first)


def _check_description(scorer: Scorer, query: str, hits: Sequence[Hit], scores: Scores) -> None:
    declared = getattr(scorer, "info", None)
    _expect(declared is None or isinstance(declared, ScorerInfo), "info must be a resift.types.ScorerInfo")
    info = describe_scorer(scorer)
    _expect(
        info.name == own_name(scorer), f"info has the name {info.name!r}, the scorer {own_name(scorer)!r}"
    )
    low, high = _RANGES.get(info.score_scale, (-float("inf"), float("inf")))
    outside = [value for value in scores.values if value is not None and not low <= value <= high]
    _expect(not outside, f"{info.score_scale} scores lie between {low} and {high}, not {outside}")
    if info.pointwise:
        for hit, value in zip(hits, scores.values, strict=True):
            [alone] = _run(scorer.score(query, [hit], deadline=Deadline.never())).values
            # A batch may round otherwise than a single text.
            same = alone == value or (None not in (alone, value) and abs(alone - value) <= 1e-3)  # type: ignore[operator]
            _expect(same, f"a pointwise scorer gave {value} in a list and {alone} alone")


async def check_store(store: Any) -> None:
    """Check an empty store: add, get, count, search, filter, update, delete, order, limits.

    Takes the store while it is open; leaves it empty.
    """
    _expect(bool(own_name(store)), "a store needs a name")
    _expect(await store.count() == 0, "check_store needs an empty store")
    _expect(await store.search(QUERY, k=3) == [], "an empty store must find nothing")
    documents = [
        {"id": "paris", "text": "Paris is the capital of France.", "metadata": {"kind": "city", "page": 1}},
        {"id": "rome", "text": "Rome is the capital of Italy.", "metadata": {"kind": "city", "page": 2}},
        {
            "id": "cell",
            "text": "Mitochondria are the powerhouse of the cell.",
            "metadata": {"kind": "biology"},
        },
    ]
    _expect(await store.add(documents) == 3, "add must return how many documents it took")
    _expect(await store.count() == 3, "count must see what was added")
    await _check_search(store)
    await _check_writes(store)


async def _check_search(store: Any) -> None:
    found = await store.search(QUERY, k=3)
    _expect([hit.id for hit in found][:1] == ["paris"], f"{QUERY!r} must find 'paris' first")
    _expect(all(hit.source == store.name for hit in found), "a hit's source must be the store's name")
    order = [by_score(hit) for hit in found]
    _expect(order == sorted(order), "hits must be sorted by (-score, id)")
    _expect(found[0].text == "Paris is the capital of France.", "text must come back as it went in")
    _expect(found[0].metadata["page"] == 1, "metadata must come back as it went in")
    _expect(len(await store.search(QUERY, k=1)) == 1, "k must be respected")
    _expect(await store.search(QUERY, k=0) == [], "k=0 must give no hits")
    _expect(await store.search("  ", k=3) == [], "a blank query must give no hits")
    _expect(await store.search(QUERY, k=3) == found, "the same search must give the same hits")
    cities = await store.search("capital cell", k=3, where={"kind": "biology"})
    _expect({hit.id for hit in cities} <= {"cell"}, "where must filter by metadata")
    try:
        await store.search(QUERY, k=-1)
    except InputError:
        return
    raise AssertionError("k < 0 must raise InputError")


async def _check_writes(store: Any) -> None:
    await store.add([{"id": "rome", "text": "Rome was not built in a day.", "metadata": {"kind": "saying"}}])
    _expect(await store.count() == 3, "adding a known id must replace the document")
    changed = await store.get(["rome", "unknown"])
    _expect([hit.text for hit in changed] == ["Rome was not built in a day."], "get must see the update")
    _expect(await store.delete(["rome", "unknown"]) == 1, "delete must return how many it removed")
    gone = {hit.id for hit in await store.search("Rome", k=3)}
    _expect("rome" not in gone, "a deleted document must not be found")
    await store.delete(["paris", "cell"])
    _expect(await store.count() == 0, "delete must leave nothing behind")


def _expect(holds: bool, rule: str) -> None:
    if not holds:
        raise AssertionError(rule)


def _refuses(call: Callable[[], Awaitable[object]]) -> None:
    try:
        _run(call())
    except InputError:
        return
    raise AssertionError("k < 0 must raise InputError")


def _run(awaitable: Awaitable[T]) -> T:
    async def wait() -> T:
        return await awaitable

    work: Coroutine[object, object, T] = wait()
    return asyncio.run(work)
