"""The contract checks accept correct implementations and name the broken rule of others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from resift import Hit, RRFReranker
from resift.deadline import Deadline
from resift.errors import InputError, ProviderServerError, StoreError
from resift.testing import FakeStore, OverlapScorer, check_reranker, check_scorer, check_store
from resift.types import ScorerInfo, Scores


class Wrong(RRFReranker):
    """A reranker with one injected fault."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault

    async def fuse(self, per_store, *, k, query=None):
        return self.fault(per_store, k, await super().fuse(per_store, k=max(k, 0), query=query))


FAULTS = {
    "unknown ids": lambda lists, k, fused: [*fused, Hit("ghost")],
    "an id twice": lambda lists, k, fused: [*fused, *fused],
    "more than k=": lambda lists, k, fused: fused or [Hit("paris")] if lists else fused,
    "return a list": lambda lists, k, fused: tuple(fused),
    "return Hits": lambda lists, k, fused: ["paris"],
    "changed its input": lambda lists, k, fused: (lists[0].pop() if lists and lists[0] else None, fused)[1],
    "no hits for no lists": lambda lists, k, fused: fused if lists else [Hit("paris")],
    "k < 0 must raise": lambda lists, k, fused: fused,
}


@pytest.mark.parametrize("rule", sorted(FAULTS))
def test_check_reranker_names_the_broken_rule(rule):
    """A plugin author reads which rule was broken."""
    with pytest.raises(AssertionError, match=rule):
        check_reranker(Wrong(FAULTS[rule]))


def test_check_reranker_requires_a_fuse_method():
    """An object without fuse is rejected."""
    with pytest.raises(AssertionError, match="async def fuse"):
        check_reranker(object())


def test_check_reranker_finds_unstable_results():
    """The same input must give the same result."""
    calls = iter(range(100))
    with pytest.raises(AssertionError, match="different result"):
        check_reranker(Wrong(lambda lists, k, fused: fused[: next(calls) + 1]))


class Scorer(OverlapScorer):
    def __init__(self, change):
        super().__init__()
        self.change = change

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        return self.change(await super().score(query, hits, deadline=deadline))


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("scores for", lambda scores: Scores(scores.values[1:], "x")),
        ("finite", lambda scores: Scores([float("inf")] * 4, "x")),
        ("return Scores", lambda scores: list(scores.values)),
    ],
)
def test_check_scorer_names_the_broken_rule(rule, change):
    """Each broken rule of a scorer has its own message."""
    with pytest.raises(AssertionError, match=rule):
        check_scorer(Scorer(change))


@pytest.mark.parametrize(
    ("rule", "info"),
    [
        ("ScorerInfo", {"score_scale": "logit"}),
        ("name", ScorerInfo(name="other")),
        ("between", ScorerInfo(name="overlap", score_scale="probability")),
    ],
)
def test_check_scorer_reads_the_description(rule, info):
    """The description must be a ScorerInfo and match the scores."""
    scorer = OverlapScorer()
    scorer.info = info
    with pytest.raises(AssertionError, match=rule):
        check_scorer(scorer)


def test_check_scorer_rejects_a_pointwise_score_that_depends_on_the_list():
    """A score that depends on the other texts must not be cached, so it must not be declared pointwise."""
    scorer = Scorer(lambda scores: Scores([value + len(scores.values) for value in scores.values], "x"))
    with pytest.raises(AssertionError, match="pointwise"):
        check_scorer(scorer)
    scorer.info = ScorerInfo(name="overlap", score_scale="logit", languages=("en",))
    check_scorer(scorer)


def test_check_scorer_accepts_a_good_one():
    """The fake scorer keeps the contract."""
    check_scorer(OverlapScorer())
    with pytest.raises(AssertionError, match="async def score"):
        check_scorer(object())


def test_check_store_finds_a_store_that_does_not_delete():
    """A store that does not delete fails the check."""
    from resift.stores.memory import MemoryStore

    asyncio.run(check_store(MemoryStore()))

    class Keeper(MemoryStore):
        async def delete(self, ids):
            return len(list(ids))

    with pytest.raises(AssertionError, match="delete"):
        asyncio.run(check_store(Keeper()))


def test_fake_store_searches_fails_and_rejects_negative_k():
    """The fake store finds documents, fails on request, and rejects k < 0."""
    documents = [{"id": "a", "text": "blue sky", "metadata": {"n": 1}}, {"id": "b", "text": "blue sea"}]
    store = FakeStore(documents, name="f")
    found = asyncio.run(store.search("blue sky!", k=5))
    assert [(hit.id, hit.score, hit.source) for hit in found] == [("a", 2.0, "f"), ("b", 1.0, "f")]
    assert [hit.id for hit in asyncio.run(store.search("blue", k=5, where={"n": 1}))] == ["a"]
    assert store.queries == ["blue sky!", "blue"]
    with pytest.raises(InputError):
        asyncio.run(store.search("blue", k=-1))
    with pytest.raises(StoreError):
        asyncio.run(FakeStore(fails=True).search("x", k=1))
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(FakeStore(hangs=True).search("x", k=1), 0.01))


def test_overlap_scorer_fails_on_request():
    """The failure is an error of a provider."""
    with pytest.raises(ProviderServerError):
        asyncio.run(OverlapScorer(fails=True).score("q", [Hit("a", "t")], deadline=Deadline.never()))


def test_the_provider_server_of_0_2_says_what_to_do():
    with pytest.raises(ImportError, match="base_url"):
        from resift.testing import ProviderServer  # noqa: F401
