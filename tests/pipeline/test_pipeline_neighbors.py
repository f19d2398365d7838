"""Which hits are alike, asked of stores that keep vectors: asked once, never needed, told when it failed."""

from __future__ import annotations

import asyncio

import pytest

from resift.pipeline import Pipeline, StoreRef
from resift.pipeline.pipeline import MAX_NEIGHBOR_HITS
from resift.pipeline.stages import Shape
from resift.ranking.shape import Blend, Guard, ShapePolicy
from resift.stores.base import StoreView
from tests.pipeline.fake_stores import Answers, Points

pytest.importorskip("numpy")

IDS = list("abcdef")
VECTORS = {"a": [1.0, 0.0], "f": [0.9, 0.1], "b": [0.0, 1.0], "c": [0.1, 1.0], "d": [0.2, 1.0]}
POINTS = {"a": 5.0, "b": -1.0, "c": -1.0, "d": -1.0, "e": -1.0, "f": -1.0}


class Keeps(Answers):
    """A store that keeps vectors and remembers for whom it was asked."""

    def __init__(self, name="docs", vectors=None, *, error=None, ids=IDS):
        super().__init__(name, ids)
        self.vectors_held = VECTORS if vectors is None else vectors
        self.error = error
        self.wanted = []

    async def get_vectors(self, ids):
        self.wanted.append(list(ids))
        if self.error is not None:
            raise self.error
        return {id: self.vectors_held[id] for id in ids if id in self.vectors_held}


def pipeline(*stores, blend=None, **options):
    policy = ShapePolicy(blend=blend or Blend(), guard=Guard())
    return Pipeline(
        stores, rerank=Points(POINTS, name="cross-encoder", score_scale="logit"), shape=Shape(policy), k=6, **options
    )


def test_what_is_like_the_best_rises():
    """'f' is last of the store and like 'a', which the reranker is sure of; without vectors it stays last."""
    plain, asked = pipeline(Answers("docs", IDS)).rank("words"), pipeline(Keeps()).rank("words")
    assert plain.ids[-1] == "f"
    assert asked.ids.index("f") < plain.ids.index("f")
    assert "higher-scoring similar hits" in asked.why("f")
    assert "neighbors" in asked.timings
    assert not asked.degraded
    assert asked.replay() == asked.ids


def test_hits_without_a_vector_stand_for_themselves():
    """'e' has no vector: its path knows no neighbors."""
    ranking = pipeline(Keeps()).rank("words")
    assert "neighbors" not in {name for step in ranking.path("e") for name, _ in step.parts}


def test_two_views_of_a_store_are_asked_once():
    """The words and the vectors of one store are two lists and one place to ask."""

    class Hybrid(Keeps):
        async def search_side(self, query, *, k, where, source):
            return await self.search(query, k=k)

    store = Hybrid()
    views = StoreView(store, "text", store.search_side), StoreView(store, "vectors", store.search_side)
    pipeline(*views).rank("words")
    assert len(store.wanted) == 1
    assert sorted(store.wanted[0]) == IDS


def test_of_two_stores_the_one_that_knows_most_is_believed():
    """Vectors of two stores may be of two embedders: they are never compared with one another."""
    few = Keeps("few", {"b": [1.0, 0.0, 0.0], "f": [1.0, 0.0, 0.0]})
    many = Keeps("many")
    both = pipeline(few, many).rank("words")
    assert both.ids == pipeline(Answers("few", IDS), many).rank("words").ids


@pytest.mark.parametrize("blend", [Blend(weight=0), Blend(weight=1), Blend(neighbors=0)])
def test_nobody_is_asked_where_it_makes_no_difference(blend):
    """The end points of the blend, and neighbors switched off, cost nothing."""
    store = Keeps()
    asked = pipeline(store, blend=blend).rank("words")
    assert store.wanted == []
    assert asked.ids == pipeline(Answers("docs", IDS), blend=blend).rank("words").ids


def test_a_store_that_fails_costs_only_the_neighbors():
    """The order is that without vectors, and the answer says what was left out, without the error's text."""
    ranking = pipeline(Keeps(error=OSError("secret words"))).rank("words")
    assert ranking.ids == pipeline(Answers("docs", IDS)).rank("words").ids
    assert ranking.degraded
    assert ranking.reason == "neighbors: no vectors: OSError"


def test_vectors_that_come_too_late_are_not_waited_for():
    """A store that hangs on vectors: the answer is there within the deadline."""

    class Hangs(Keeps):
        async def get_vectors(self, ids):
            await asyncio.Event().wait()

    ranking = pipeline(Hangs()).rank("words", deadline_s=0.3)
    assert sorted(ranking.ids) == IDS
    assert "neighbors: no vectors in time" in ranking.reason


def test_the_work_is_bounded():
    """Of a pool of thousands, the best 200 of the fused order are compared."""
    ids = [f"{number:04}" for number in range(3000)]
    store = Keeps(ids=ids, vectors={id: [1.0, 0.0] for id in ids})
    ref = StoreRef(store=store, k=3000)
    pipeline(ref).rank("words")
    assert MAX_NEIGHBOR_HITS == 200
    assert [len(wanted) for wanted in store.wanted] == [MAX_NEIGHBOR_HITS]
