"""The cascade: fewer pairs, the same top k, and a reason for what was left out."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.deadline import Deadline
from resift.errors import InputError
from resift.protocols import Reranker, Scorer
from resift.rerankers.cascade import CascadeReranker
from resift.rerankers.rescore import rescore
from resift.types import Hit, Scores


class Table:
    """A scorer that knows each hit's value by id and counts what it was asked."""

    name = "table"

    def __init__(self, values, *, limit=None):
        self.values = values
        self.asked = 0
        self.limit = limit

    async def score(self, query, hits, *, deadline):
        self.asked += len(hits)
        if self.limit is not None and self.asked > self.limit:
            return Scores([None] * len(hits), self.name, degraded=True, reason="deadline")
        return Scores([self.values[hit.id] for hit in hits], self.name)


def hits(count):
    return [Hit(f"{number:03}", f"text {number}") for number in range(count)]


def falling(count):
    return {f"{number:03}": float(-number) for number in range(count)}


def test_a_pool_in_good_order_is_settled_early():
    costly = Table(falling(200))
    ranking = asyncio.run(rescore(CascadeReranker(costly, k=5, patience=10), "q", hits(200), k=5))
    assert ranking.ids == ["000", "001", "002", "003", "004"]
    assert costly.asked == 16
    assert not ranking.degraded
    assert ranking.reason == "top 5 settled after 16 of 200 hits"
    assert len(ranking.cut) == 195


def test_the_cheap_scorer_decides_the_order_of_scoring():
    costly, cheap = Table(falling(100)), Table({key: -value for key, value in falling(100).items()})
    good = Table(falling(100))
    asyncio.run(rescore(CascadeReranker(costly, cheap=good, k=3, patience=5), "q", hits(100)[::-1], k=3))
    assert costly.asked == 8
    worst = Table(falling(100))
    ranking = asyncio.run(rescore(CascadeReranker(worst, cheap=cheap, k=3, patience=5), "q", hits(100), k=3))
    assert worst.asked == 100
    assert ranking.ids == ["000", "001", "002"]


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=60), st.integers(1, 5), st.integers(1, 60))
def test_patience_as_long_as_the_pool_loses_nothing(values, k, extra):
    pool = hits(len(values))
    table = {hit.id: value for hit, value in zip(pool, values, strict=True)}
    cascade = CascadeReranker(Table(table), k=k, patience=len(values) + extra)
    full = asyncio.run(rescore(Table(table), "q", pool, k=k))
    assert asyncio.run(rescore(cascade, "q", pool, k=k)).ids == full.ids


def test_a_deadline_during_scoring_is_reported():
    ranking = asyncio.run(rescore(CascadeReranker(Table(falling(50), limit=10), k=5), "q", hits(50), k=50))
    assert ranking.degraded
    assert ranking.reason == "deadline"
    assert len(ranking) == 50


def test_it_is_a_scorer_and_a_reranker():
    cascade = CascadeReranker(Table(falling(4)), k=1, patience=1)
    assert isinstance(cascade, Scorer)
    assert isinstance(cascade, Reranker)
    fused = asyncio.run(cascade.fuse([hits(4)[:2], hits(4)[2:]], k=2, query="q"))
    assert [hit.id for hit in fused] == ["000", "001"]
    scores = asyncio.run(cascade.score("q", [], deadline=Deadline.never()))
    assert list(scores.values) == []


def test_invalid_options_are_refused():
    with pytest.raises(InputError):
        CascadeReranker(Table({}), k=0)
