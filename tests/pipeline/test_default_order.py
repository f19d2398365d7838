"""The default order, lists to answer: what must not change it, and stores and rerankers of every kind."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from resift import Hit
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.stages import AdaptiveDepth, Rerank, Shape
from resift.ranking.blend import USUAL_SPREAD
from resift.ranking.evidence import mean_and_deviation
from resift.ranking.fusion.weighted import WeightedReranker
from resift.types import ScorerInfo, Scores, StageKind

PROSE = "words of a passage that reads like any other text one finds in a book "


class Store:
    """Answers one list, whatever is asked."""

    def __init__(self, name, kind, pairs):
        self.name, self.kind = name, kind
        self.hits = [Hit(id, f"{PROSE} {id}", score, name) for id, score in pairs]

    async def search(self, query, *, k, where=None):
        return self.hits[:k]


class Scorer:
    """Says what it was told to say of each hit."""

    def __init__(self, values, score_scale="logit"):
        self.values, self.name = values, "scorer"
        self.info = ScorerInfo(name=self.name, score_scale=score_scale)

    async def score(self, query, hits, *, deadline):
        return Scores([self.values[hit.id] for hit in hits], self.name)


def answer(stores, scorer):
    pipeline = Pipeline(
        stores, fuse=WeightedReranker(), rerank=Rerank(scorer, depth=AdaptiveDepth()), guard=Shape(name="guard")
    )
    ranking = pipeline.rank("a question", k=8)
    assert not ranking.degraded
    return ranking


def listed(scores, step):
    """Return (id, score) best first; which hits a list holds depends on the step."""
    return [(f"h{at * step % 11}", score) for at, score in enumerate(sorted(scores, reverse=True))]


levels = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.5, 1.0, 3.0]), min_size=1, max_size=8)
logits = st.lists(st.sampled_from([-9.0, -4.0, -4.0, 0.5, 6.0]), min_size=11, max_size=11).map(
    lambda values: {f"h{at}": value for at, value in enumerate(values)}
)


def stores_of(words, meaning, graph=()):
    return [
        Store("words", "doc", listed(words, 1)),
        Store("meaning", "vector", listed(meaning, 3)),
        Store("graph", "graph", [(id, None) for id, _ in listed(graph, 4)]),
    ]


@given(words=levels, meaning=levels, graph=levels, said=logits, turned=st.permutations([0, 1, 2]))
def test_the_order_of_the_lists_does_not_matter(words, meaning, graph, said, turned):
    stores = stores_of(words, meaning, graph)
    moved = [stores[at] for at in turned]
    assert answer(moved, Scorer(said)).ids == answer(stores, Scorer(said)).ids


@given(words=levels, meaning=levels, said=logits, factor=st.sampled_from([0.25, 8.0]))
def test_scale_and_shift_of_scores_do_not_matter(words, meaning, said, factor):
    """Of words the scale, whose 0 has a meaning; of vectors scale and shift."""
    plain = stores_of(words, meaning)[:2]
    other = [
        Store("words", "doc", [(id, factor * score) for id, score in listed(words, 1)]),
        Store("meaning", "vector", [(id, factor * score - 16.0) for id, score in listed(meaning, 3)]),
    ]
    scores = [{hit.id: round(hit.score, 9) for hit in answer(one, Scorer(said))} for one in (plain, other)]
    assert scores[0] == scores[1]


@given(words=levels, meaning=levels, said=logits)
def test_a_list_twice_or_an_empty_one_does_not_matter(words, meaning, said):
    stores = stores_of(words, meaning)[:2]
    more = [*stores, Store("again", "doc", listed(words, 1)), Store("empty", "graph", [])]
    assert answer(more, Scorer(said)).ids == answer(stores, Scorer(said)).ids


@given(words=levels, meaning=levels, level=st.sampled_from([-3.0, 0.0, 5.0]))
def test_a_reranker_that_tells_none_from_another_moves_none(words, meaning, level):
    stores = stores_of(words, meaning)[:2]
    ranking = answer(stores, Scorer({f"h{at}": level for at in range(11)}))
    fused = Pipeline(stores, fuse=WeightedReranker()).rank("a question", k=8)
    assert ranking.ids == fused.ids


@settings(max_examples=20)
@given(count=st.integers(1, 8), level=st.sampled_from([0.0, 1.0, None]))
def test_equal_scores_keep_the_lists_order(count, level):
    """A store that says the same of all, or nothing at all, still has an order."""
    pairs = [(f"h{9 - at}", level) for at in range(count)]
    ranking = answer([Store("only", "vector", pairs)], Scorer({f"h{at}": 1.0 for at in range(11)}))
    assert ranking.ids == [id for id, _ in pairs]


@given(words=levels, meaning=levels, other=levels, said=logits, factor=st.sampled_from([1e-3, 64.0]))
def test_a_store_of_unknown_scale_may_count_in_any_unit(words, meaning, other, said, factor):
    """Beside words and vectors: thousandths or thousands, from any zero."""
    pairs = listed(other, 4)
    plain, moved = (
        answer([*stores_of(words, meaning)[:2], Store("other", "search", scored)], Scorer(said))
        for scored in (pairs, [(id, factor * score - 16.0) for id, score in pairs])
    )
    assert {hit.id: round(hit.score, 6) for hit in moved} == {hit.id: round(hit.score, 6) for hit in plain}


kinds = st.sampled_from(["doc", "vector", "graph", "search", ""])


@given(drawn=st.lists(st.tuples(kinds, levels, st.booleans()), min_size=3, max_size=6), said=logits, at=st.data())
def test_any_number_of_stores_with_and_without_scores(drawn, said, at):
    """In any order of the stores the same answer, and every hit that any of them found has its place."""
    stores = [
        Store(f"s{number}", kind, [(id, score if scored else None) for id, score in listed(values, number + 1)])
        for number, (kind, values, scored) in enumerate(drawn)
    ]
    ranking = answer(stores, Scorer(said))
    found = {hit.id for store in stores for hit in store.hits}
    assert set(ranking.ids) <= found
    assert len(ranking.ids) == min(8, len(found))
    assert answer(at.draw(st.permutations(stores)), Scorer(said)).ids == ranking.ids


@given(words=levels, meaning=levels, said=logits)
def test_a_hosted_reranker_orders_like_the_logits_behind_its_probabilities(words, meaning, said):
    """Probabilities of logits that spread at least as far as usual count exactly as those logits."""
    stores = stores_of(words, meaning)[:2]
    local = answer(stores, Scorer(said))
    [read] = local.trace.by_kind(StageKind.RERANK)
    assume(mean_and_deviation([score for score in read.scores if score is not None])[1] >= USUAL_SPREAD)
    odds = {id: 1 / (1 + math.exp(-value)) for id, value in said.items()}
    hosted = answer(stores, Scorer(odds, "probability"))
    assert hosted.ids == local.ids
    assert [hit.score for hit in hosted] == pytest.approx([hit.score for hit in local])


def test_a_sure_hosted_reranker_is_followed_like_a_local_one():
    """Three stores, one without scores; the answer stands fourth in one list and nowhere else."""
    stores = [*stores_of([3.0, 2.9, 2.8, 2.7], [0.5, 0.45]), Store("rows", "search", [("h9", 1200.0), ("h0", 3.0)])]
    sure = {f"h{at}": 0.99 if at == 3 else 0.001 * (at + 1) for at in range(11)}
    logit = {id: math.log(value / (1 - value)) for id, value in sure.items()}
    assert answer(stores, Scorer(sure, "probability"))[0].id == "h3"
    assert answer(stores, Scorer(logit))[0].id == "h3"
    level = answer(stores, Scorer(dict.fromkeys(sure, 0.5), "probability"))
    assert level.ids == Pipeline(stores, fuse=WeightedReranker()).rank("a question", k=8).ids
