"""TwoStage: on a store of ours and on an object with txtai's methods."""

from __future__ import annotations

import asyncio
import copy
import inspect

import pytest

from resift.errors import InputError
from resift.pipeline import OverFetch, TwoStage
from resift.stores import MemoryStore
from tests.pipeline.fake_stores import Points

TEXTS = ["red apple", "green apple", "blue sky", "apple pie with apple", "grey sky"]


class TxtaiLike:
    """The methods of a txtai Embeddings with content, as far as TwoStage uses them."""

    def __init__(self, rows=None, *, content=True):
        self.rows = [
            {"id": str(at), "text": text, "score": 0.9 - at / 10, "tag": f"t{at}"} for at, text in enumerate(TEXTS)
        ]
        if rows is not None:
            self.rows = rows
        self.content = content
        self.calls = []

    def batchsearch(self, queries, limit=None, weights=None, index=None):
        self.calls.append((list(queries), limit, weights))
        if not self.content:
            return [[(row["id"], row["score"]) for row in self.rows[:limit]] for _ in queries]
        return [self.rows[:limit] for _ in queries]


def count_words(query, texts):
    """A txtai-like similarity: (index, score), best first."""
    scores = [(at, float(sum(word in query.split() for word in text.split()))) for at, text in enumerate(texts)]
    return sorted(scores, key=lambda pair: -pair[1])


def test_the_call_has_the_documented_signature():
    """`(query, limit=3, factor=10, **kwargs)`."""
    parameters = inspect.signature(TwoStage.__call__).parameters
    assert [(name, p.default) for name, p in parameters.items() if name in ("limit", "factor")] == [
        ("limit", 3),
        ("factor", 10),
    ]
    assert parameters["kwargs"].kind is inspect.Parameter.VAR_KEYWORD


def test_x1_one_query_gives_rows_with_their_columns_and_new_scores():
    """A string gives a list of dicts, best first, with other columns kept and the input untouched."""
    embeddings = TxtaiLike()
    before = copy.deepcopy(embeddings.rows)
    rows = TwoStage(embeddings, count_words)("apple", limit=2)
    assert rows == [
        {"id": "3", "text": "apple pie with apple", "score": 2.0, "tag": "t3"},
        {"id": "0", "text": "red apple", "score": 1.0, "tag": "t0"},
    ]
    assert embeddings.rows == before
    assert embeddings.calls == [(["apple"], 20, None)]


def test_x1_a_list_of_queries_gives_a_list_of_lists():
    """Batch in, batch out, one first-stage call for all."""
    embeddings = TxtaiLike()
    rows = TwoStage(embeddings, count_words)(["apple", "sky"], 2, 3, weights=0.5)
    assert [[row["id"] for row in each] for each in rows] == [["3", "0"], ["2", "4"]]
    assert embeddings.calls == [(["apple", "sky"], 6, 0.5)]
    assert TwoStage(embeddings, count_words)([]) == []


def test_x1_equal_scores_keep_the_first_stage_order():
    """Ties are stable, also when the similarity lists them the other way round."""

    def all_equal(query, texts):
        return [(at, 0.5) for at in reversed(range(len(texts)))]

    rows = TwoStage(TxtaiLike(), all_equal)("apple", limit=5)
    assert [row["id"] for row in rows] == ["0", "1", "2", "3", "4"]


def test_x1_a_store_of_ours_is_the_first_stage():
    """Any store serves as `embeddings`; filters pass through."""

    async def stocked():
        store = MemoryStore(name="docs")
        await store.add([{"id": f"d{at}", "text": text, "metadata": {"n": at % 2}} for at, text in enumerate(TEXTS)])
        return store

    two = TwoStage(asyncio.run(stocked()), count_words)
    [best, *others] = two("apple", limit=3)
    assert (best["id"], best["score"], best["source"], best["metadata"]) == ("d3", 2.0, "docs", {"n": 1})
    assert [row["id"] for row in two("apple", where={"n": 0})] == ["d0"]
    assert {row["id"] for row in others} == {"d0", "d1"}


def test_x1_a_scorer_of_ours_is_the_second_stage():
    """Any reranker serves as `similarity`; rows it cannot judge stand last with score None."""
    scorer = Points({"1": 5.0, "4": 7.0})
    rows = TwoStage(TxtaiLike(), scorer)("apple", limit=4)
    assert [(row["id"], row["score"]) for row in rows] == [("4", 7.0), ("1", 5.0), ("0", None), ("2", None)]


def test_x1_works_inside_a_running_loop():
    """The sync call works in notebooks, and `search` is there for async code."""

    async def work():
        two = TwoStage(TxtaiLike(), count_words)
        return await asyncio.to_thread(two, "apple"), await two.search("apple")

    called, awaited = asyncio.run(work())
    assert called == awaited


@pytest.mark.parametrize(
    ("rows", "content", "message"),
    [
        (None, False, "content=True"),
        ([{"id": "a", "score": 1.0}], True, r"Row 0 \(id 'a'\) has no text"),
        ([{"id": "a", "text": None, "score": 1.0}], True, "has no text"),
        ([{"id": "a", "text": b"bytes", "score": 1.0}], True, "has no text"),
    ],
)
def test_x1_missing_content_is_a_clear_error(rows, content, message):
    """Without texts there is nothing to judge, and the message says what to do."""
    with pytest.raises(InputError, match=message):
        TwoStage(TxtaiLike(rows, content=content), count_words)("apple")


@pytest.mark.parametrize("pairs", [[(9, 1.0)], [(-1, 1.0)], [(0, 1.0), (0, 2.0)], [("0", 1.0)], [(0.0, 1.0)]])
def test_x1_wrong_indices_are_an_error(pairs):
    """An index that is no row, or twice the same, is never a wrong answer."""
    with pytest.raises(InputError, match="similarity returned index"):
        TwoStage(TxtaiLike(), lambda query, texts: pairs)("apple")


def test_v3_scores_that_are_no_number_stand_last():
    """NaN never decides an order."""
    rows = TwoStage(TxtaiLike(), lambda query, texts: [(0, float("nan")), (1, -5.0)])("apple", limit=3)
    assert [(row["id"], row["score"]) for row in rows] == [("1", -5.0), ("0", None), ("2", None)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query": 5}, "query is a int"),
        ({"query": ["a", None]}, "query is a list"),
        ({"query": "a", "limit": -1}, "limit is -1"),
        ({"query": "a", "limit": 2.5}, "limit is 2.5"),
        ({"query": "a", "factor": 0}, "factor is 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    """A wrong argument is an error that says what is allowed."""
    with pytest.raises(InputError, match=message):
        TwoStage(TxtaiLike(), count_words)(**arguments)


def test_limit_zero_asks_nobody():
    """limit=0 is an empty answer."""
    embeddings = TxtaiLike()
    assert TwoStage(embeddings, count_words)("apple", limit=0) == []
    assert embeddings.calls == []


@pytest.mark.parametrize("wrong", [(object(), count_words), (TxtaiLike(), object())])
def test_parts_that_cannot_work_are_refused(wrong):
    """Wrong parts are an error at construction."""
    with pytest.raises(InputError):
        TwoStage(*wrong)


@pytest.mark.parametrize(
    ("policy", "wanted", "fetched"),
    [
        (OverFetch(), 3, 30),
        (OverFetch(factor=2), 5, 10),
        (OverFetch(minimum=50), 3, 50),
        (OverFetch(cap=20), 3, 20),
        (OverFetch(cap=2), 3, 3),
        (OverFetch(factor=4, minimum=50, cap=1000), 300, 1000),
    ],
)
def test_x2_over_fetch_policies(policy, wanted, fetched):
    """Factor, minimum and cap, and never fewer than wanted."""
    assert policy(wanted) == fetched


def test_x2_a_policy_holds_until_a_call_names_a_factor():
    """The policy of the object, or the factor of the call, also when that is the default's number."""
    embeddings = TxtaiLike()
    two = TwoStage(embeddings, count_words, fetch=OverFetch(factor=2, cap=25))
    two("apple")
    two("apple", factor=10)
    two("apple", factor=5)
    assert [call[1] for call in embeddings.calls] == [6, 25, 15]


@pytest.mark.parametrize("wrong", [{"factor": 0}, {"factor": 1.5}, {"minimum": -1}, {"cap": 0}])
def test_x2_impossible_policies_are_refused(wrong):
    """A policy that cannot be met is an error."""
    with pytest.raises(InputError, match="OverFetch"):
        OverFetch(**wrong)


def test_an_index_whose_search_is_not_async_serves():
    """A plain `search(query, limit)`, as many libraries have, is asked in a thread."""

    class Plain:
        def __init__(self):
            self.asked = []

        def search(self, query, limit):
            self.asked.append((query, limit))
            return [{"id": str(at), "text": text} for at, text in enumerate(["one", "two two"])][:limit]

    index = Plain()
    two = TwoStage(index, lambda query, texts: [(at, float(len(text))) for at, text in enumerate(texts)])
    assert [row["id"] for row in two("q", limit=1, factor=2)] == ["1"]
    assert index.asked == [("q", 2)]


def test_batch_answers_a_list_of_questions():
    """`batch` is the call with a list, under its own name."""

    class Plain:
        def search(self, query, k):
            return [{"id": query, "text": query}]

    two = TwoStage(Plain(), lambda query, texts: [(0, 1.0)])
    assert [[row["id"] for row in rows] for rows in two.batch(["a", "b"])] == [["a"], ["b"]]
