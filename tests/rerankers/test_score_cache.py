"""The score cache: pointwise only, misses only, never fatal, no text at rest."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from resift.deadline import Deadline
from resift.errors import InputError, ProviderServerError
from resift.events import ListSink
from resift.rerankers.score_cache import CachedScorer, MemoryScores, SQLiteScores
from resift.rerankers.semantic_bm25 import SemanticBM25Reranker
from resift.testing import FakeClock
from resift.types import Hit, Scores


class Length:
    """A pointwise scorer: the length of the text."""

    name = "length"
    model = "length-1"
    revision = "r1"
    pointwise = True

    def __init__(self):
        self.asked = []
        self.error = None

    async def score(self, query, hits, *, deadline):
        self.asked.append([hit.text for hit in hits])
        if self.error:
            raise self.error
        return Scores([None if hit.text == "hole" else float(len(hit.text)) for hit in hits], self.name)


def pool(*texts):
    return [Hit(f"{at}-{text}", text) for at, text in enumerate(texts)]


def score(scorer, query, *texts):
    return asyncio.run(scorer.score(query, pool(*texts), deadline=Deadline.never()))


@pytest.fixture(params=["memory", "sqlite"])
def cache(request, tmp_path):
    return MemoryScores() if request.param == "memory" else SQLiteScores(tmp_path / "scores.db")


def test_only_misses_are_scored(cache):
    sink, inner = ListSink(), Length()
    scorer = CachedScorer(inner, cache, sink=sink)
    assert score(scorer, "q", "a", "bb").values == [1.0, 2.0]
    assert score(scorer, "q", "bb", "ccc", "a").values == [2.0, 3.0, 1.0]
    again = score(scorer, "q", "ccc", "ccc")
    assert (again.values, again.provider) == ([3.0, 3.0], "length")
    assert inner.asked == [["a", "bb"], ["ccc"]]
    assert [(event.hits, event.misses, event.failed) for event in sink.named("score_cache")] == [
        (0, 2, False),
        (2, 1, False),
        (2, 0, False),
    ]


def test_query_model_and_revision_are_part_of_the_key(cache):
    inner = Length()
    for scorer in (
        CachedScorer(inner, cache),
        CachedScorer(inner, cache, model="length-2"),
        CachedScorer(inner, cache, revision="r2"),
    ):
        score(scorer, "q", "a")
        score(scorer, "other", "a")
    assert len(inner.asked) == 6
    score(CachedScorer(inner, cache), "qa", "")
    score(CachedScorer(inner, cache), "q", "a")
    assert len(inner.asked) == 7, "the border between query and text is part of the key too"


def test_a_pool_dependent_scorer_is_refused():
    with pytest.raises(InputError, match="'semantic-bm25' may depend on the whole pool"):
        CachedScorer(SemanticBM25Reranker(), MemoryScores())


def test_a_scorer_without_a_model_name_needs_the_argument():
    class Nameless(Length):
        model = None

    with pytest.raises(InputError, match="pass model="):
        CachedScorer(Nameless(), MemoryScores())


def test_missing_scores_are_not_cached(cache):
    inner = Length()
    scorer = CachedScorer(inner, cache)
    for _ in range(2):
        assert score(scorer, "q", "hole", "a").values == [None, 1.0]
    assert inner.asked == [["hole", "a"], ["hole"]]


def test_a_failing_scorer_is_not_hidden_by_a_few_known_scores(cache):
    inner = Length()
    scorer = CachedScorer(inner, cache)
    score(scorer, "q", "a")
    inner.error = ProviderServerError("500")
    with pytest.raises(ProviderServerError):
        score(scorer, "q", "a", "bb")
    assert score(scorer, "q", "a").values == [1.0]


def test_a_broken_cache_counts_as_empty(tmp_path, caplog):
    broken = tmp_path / "scores.db"
    broken.write_bytes(b"this is no database" * 100)
    sink, inner = ListSink(), Length()
    scorer = CachedScorer(inner, SQLiteScores(broken), sink=sink)
    assert score(scorer, "secret query", "a", "bb").values == [1.0, 2.0]
    assert sink.events[0].failed
    assert "DatabaseError" in caplog.text
    assert "secret" not in caplog.text


def test_a_locked_cache_causes_a_short_delay_only(tmp_path):
    path = tmp_path / "scores.db"
    scorer = CachedScorer(Length(), SQLiteScores(path, wait_s=0.01))
    score(scorer, "q", "a")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        assert score(scorer, "q", "bb").values == [2.0]
    finally:
        holder.close()


def test_no_text_is_stored_in_the_file(tmp_path):
    scorer = CachedScorer(Length(), SQLiteScores(tmp_path / "scores.db"))
    score(scorer, "canary-query", "canary-text")
    for file in tmp_path.iterdir():
        assert b"canary" not in file.read_bytes()
    assert "canary" not in repr(scorer)


@pytest.mark.parametrize("make", [MemoryScores, lambda *args, **kw: SQLiteScores("", *args, **kw)])
def test_invalid_limits_are_refused(make):
    for wrong in ({"max_items": 0}, {"max_items": 1.5}, {"ttl_s": 0}, {"ttl_s": float("nan")}):
        with pytest.raises(InputError, match=f"^{next(iter(wrong))} is"):
            make(**wrong)


def stores(tmp_path, clock, **options):
    return MemoryScores(clock=clock, **options), SQLiteScores(tmp_path / "scores.db", clock=clock, **options)


def test_scores_expire(tmp_path):
    clock = FakeClock()
    for store in stores(tmp_path, clock, ttl_s=10):
        store.put_many({b"a": 1.0})
        clock.advance(9)
        assert store.get_many([b"a"]) == {b"a": 1.0}
        clock.advance(1)
        assert store.get_many([b"a"]) == {}


def test_size_is_bounded(tmp_path):
    clock = FakeClock()
    for store in stores(tmp_path, clock, max_items=3):
        for number in range(10):
            clock.advance(1)
            store.put_many({bytes([number]): float(number)})
        found = store.get_many([bytes([number]) for number in range(10)])
        assert found == {bytes([number]): float(number) for number in (7, 8, 9)}


def test_memory_drops_the_least_recently_used_scores():
    store = MemoryScores(max_items=2)
    store.put_many({b"a": 1.0, b"b": 2.0})
    store.get_many([b"a"])
    store.put_many({b"c": 3.0})
    assert set(store.get_many([b"a", b"b", b"c"])) == {b"a", b"c"}


def test_a_thousand_keys_can_be_read_in_one_call(cache):
    scores = {number.to_bytes(4, "big"): float(number) for number in range(1200)}
    cache.put_many(scores)
    assert cache.get_many(list(scores)) == scores


def test_threads_share_one_cache(cache):
    def work(start):
        for number in range(start, start + 20):
            cache.put_many({number.to_bytes(4, "big"): float(number)})
        return len(cache.get_many([number.to_bytes(4, "big") for number in range(start, start + 20)]))

    with ThreadPoolExecutor(4) as workers:
        assert list(workers.map(work, range(0, 80, 20))) == [20] * 4
