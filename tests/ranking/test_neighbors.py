"""Neighbours: what is like strong candidates is lifted; weak company counts only in technical texts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.ranking.blend import KNOWN_NEIGHBORS, NEIGHBORS, neighbor_boosts
from resift.ranking.order_model import MEAN_WORD_LENGTH
from resift.ranking.shape import Blend, ShapePolicy, blend, nearest_neighbors, shape
from resift.types import Ranking
from tests.ranking.pools import everything, pipeline_hits, replays
from tests.ranking.test_blend import LISTS, LOGITS, NAMES, reranked, with_evidence

np = pytest.importorskip("numpy")


def test_nearest_is_by_cosine_and_ties_by_id():
    """Length does not matter, a right angle is no neighbor, and equal ones stand by id."""
    vectors = {"d": [0.0, 5.0], "c": [2.0, 2.0], "b": [9.0, 9.0], "a": [1.0, 0.0]}
    found = nearest_neighbors(vectors)
    half = pytest.approx(math.sqrt(0.5), abs=1e-5)
    assert found["a"] == (("b", half), ("c", half))
    assert found["b"] == (("c", 1.0), ("a", half), ("d", half))
    assert nearest_neighbors(dict(reversed(vectors.items()))) == found


def test_nothing_to_compare():
    """One vector, none, or vectors of empty texts: nobody has a neighbor."""
    assert nearest_neighbors({}) == nearest_neighbors({"a": [1.0]}) == {}
    assert nearest_neighbors({"a": [0.0, 0.0], "b": [0.0, 0.0], "c": [1.0, 0.0]}) == {"a": (), "b": (), "c": ()}


def test_pull_is_the_distance_to_the_mean_of_the_nearest_in_the_pool():
    """Weighted by cosine; strangers do not count, and those after the third neither."""
    near = {
        "a": (("gone", 0.99), ("b", 0.9), ("c", 0.6)),
        "b": (("a", 0.9), ("c", 0.5), ("d", 0.5), ("e", 0.4)),
        "e": (("gone", 0.9),),
    }
    values = [1.0, 2.0, 5.0, 3.0, 9.0]
    pulled = neighbor_boosts(list("abcde"), values, near)
    assert pulled[0] == pytest.approx((0.9 * 1 + 0.6 * 4) / 1.5)
    assert pulled[1] == pytest.approx((0.9 * -1 + 0.5 * 3 + 0.5 * 1) / 1.9)
    assert pulled[2:] == [0.0, 0.0, 0.0]
    assert neighbor_boosts(["a", "b"], [2.0, 1.0], {"a": (("b", 1.0),)}) == [0.0, 0.0]


def test_a_hit_sinks_for_weak_company_only_where_told():
    """A part of the distance to the mean of the nearest, downwards; strangers pull nobody."""
    near = {"a": (("b", 0.9), ("c", 0.6)), "b": (("a", 0.9),)}
    values = [5.0, 2.0, 2.0]
    assert neighbor_boosts(list("abc"), values, near) == [0.0, 3.0, 0.0]
    assert neighbor_boosts(list("abc"), values, near, demotion=0.5) == pytest.approx([-1.5, 3.0, 0.0])


def test_hits_sink_where_the_words_are_technical():
    """'a' stands among what the lists hold back; `why` says what its neighbors took."""
    lists = {"s": [("a", 3.0), ("b", 2.9), ("c", 1.0), ("d", 1.0)]}
    hits = pipeline_hits(lists, {"a": 0.0, "b": 0.0, "c": -1.0, "d": -1.0})
    near = {"a": (("c", 0.9), ("d", 0.9)), "b": (("a", 0.9),)}
    talk, field = (
        blend(hits, trace=with_evidence(hits, {MEAN_WORD_LENGTH: letters}), neighbors=near) for letters in (4.2, 6.0)
    )
    assert (talk.ids[0], field.ids[0]) == ("a", "b")
    blended = Ranking(field.kept, trace=hits.trace.append(*field.records))
    assert blended.path("a")[-1].parts[-1][0] == "neighbors"
    assert blended.path("a")[-1].parts[-1][1] < 0
    assert "lower-scoring similar hits" in blended.why("a")
    given = blend(hits, trace=with_evidence(hits, {MEAN_WORD_LENGTH: 6.0}), neighbors=near, policy=Blend(weight=0.5))
    assert given.ids[0] == "a", "a weight of one's own looks at no words"


def test_what_is_like_the_leader_is_lifted_and_the_record_says_by_whom():
    """'e' is like the reranker's favourite: it rises above its equal, and the parts add up to the total."""
    lists = {"s": [("a", 3.0), ("b", 2.0), ("d", 1.0), ("e", 1.0)]}
    logits = {"a": 6.0, "b": 0.0, "d": -1.0, "e": -1.0}
    hits = pipeline_hits(lists, logits)
    near = {"e": (("a", 0.9),), "d": (("b", 0.9),)}
    assert blend(hits).ids == ["a", "b", "d", "e"]
    shaped = blend(hits, neighbors=near)
    assert shaped.ids.index("e") < shaped.ids.index("d")
    blended = Ranking(shaped.kept, trace=hits.trace.append(*shaped.records))
    step = blended.path("e")[-1]
    assert [name for name, _ in step.parts] == ["first stage", "cross-encoder", "neighbors"]
    assert sum(value for _, value in step.parts) == pytest.approx(step.score)
    assert step.parts[-1][1] > 0
    assert "higher-scoring similar hits" in blended.why("e")
    assert "similar hits" not in blended.why("a")


def test_shape_passes_on_what_is_near():
    """The whole shape with neighbors is the blend with neighbors."""
    near = {"e": (("d", 1.0),)}
    hits = pipeline_hits(LISTS, LOGITS)
    assert shape(hits, k=5, policy=ShapePolicy(guard=None), neighbors=near).ids == blend(hits, neighbors=near).ids


def test_only_a_blend_of_both_sides_asks():
    """At the end points, and with neighbors switched off, it makes no difference who is alike."""
    assert Blend().uses_neighbors
    assert not any(Blend(**off).uses_neighbors for off in ({"weight": 0}, {"weight": 1}, {"neighbors": 0}))


GRID = st.lists(st.sampled_from([-1.0, 0.0, 0.0, 1.0, 1.0]), min_size=3, max_size=3)
VECTORS = st.dictionaries(st.sampled_from([*NAMES, "stranger"]), GRID, max_size=9)


@given(VECTORS)
def test_nearest_over_vectors_with_ties(vectors):
    """Nobody is near to itself; cosines fall, ties stand by id; what is near is so both ways."""
    found = nearest_neighbors(vectors)
    for id, others in found.items():
        keys = [(-cosine, other) for other, cosine in others]
        assert keys == sorted(keys)
        assert id not in dict(others)
        assert len(others) <= KNOWN_NEIGHBORS
        assert all(0 < cosine <= 1 for _, cosine in others)
        for other, cosine in others:
            assert dict(found[other]).get(id, cosine) == cosine


@given(reranked(), VECTORS, st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.3, 0.75, 1.0]))
def test_blending_with_neighbors_over_random_pools(hits, vectors, neighbors, weight):
    """Nothing is lost, records replay, ties stand by id; nobody sinks or leaves the range of the pool."""
    near, policy = nearest_neighbors(vectors), Blend(weight=weight, neighbors=neighbors)
    alone = blend(hits, policy=policy)
    shaped = blend(hits, policy=policy, neighbors=near)
    assert everything(shaped) == sorted(hit.id for hit in hits)
    assert replays(shaped)
    assert blend(shaped.kept, trace=hits.trace, policy=policy, neighbors=near).ids == shaped.ids
    if not policy.uses_neighbors or not near:
        assert [(hit.id, hit.score) for hit in shaped.kept] == [(hit.id, hit.score) for hit in alone.kept]
    elif hits and alone.records[-1].note != "nothing to blend":
        keys = [(-hit.score, hit.id) for hit in shaped.kept]
        low, high = min(hit.score for hit in alone.kept), max(hit.score for hit in alone.kept)
        assert keys == sorted(keys)
        assert blend(hits[::-1], trace=hits.trace, policy=policy, neighbors=near).ids == shaped.ids
        own = {hit.id: hit.score for hit in alone.kept}
        assert all(hit.score >= own[hit.id] for hit in shaped.kept)
        slack = 1e-9 * max(1.0, abs(low), abs(high))  # scores of 1e300 are summed, too
        assert all(low - slack <= hit.score <= high + slack for hit in shaped.kept)


@given(
    st.lists(st.sampled_from([0.0, 1.0, 1.0, 2.5]), min_size=1, max_size=8), VECTORS, st.sampled_from([0.25, 0.5, 1.0])
)
def test_equal_neighbors_pull_nobody(values, vectors, demotion):
    """A pull never reaches beyond the highest or, where hits sink, the lowest: equal values stay."""
    ids = list(NAMES[: len(values)])
    both_ways = neighbor_boosts(ids, values, nearest_neighbors(vectors), demotion=demotion)
    assert [max(0.0, way) for way in both_ways] == neighbor_boosts(ids, values, nearest_neighbors(vectors))
    for own, way in zip(values, both_ways, strict=True):
        assert min(values) - 1e-9 <= own + way <= max(values) + 1e-9
    pulled = neighbor_boosts(ids, values, nearest_neighbors(vectors))
    for own, up in zip(values, pulled, strict=True):
        assert up >= 0
        assert own + up <= max(values) + 1e-9
    assert NEIGHBORS <= KNOWN_NEIGHBORS
