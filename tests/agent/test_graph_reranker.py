"""Centrality and expansion: bounds, weights, ties, sparse graphs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.agent import GraphReranker, Pack
from resift.agent.pack import Neighborhood, expand
from resift.errors import InputError
from resift.types import Hit

NAMES = [f"a{at}" for at in range(6)]


@st.composite
def neighborhoods(draw):
    pairs = draw(st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=20))
    links = tuple(sorted((one, other, 1) for one, other in pairs if one != other))
    return Neighborhood(dict.fromkeys(NAMES, 0), links)


# Few different scores, so that ties happen.
pools = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=1, max_size=8).map(
    lambda rows: [Hit(f"{a}#{at}", "t", score, "vectors", {"article": a}) for at, (a, score) in enumerate(rows)]
)


@given(pools, neighborhoods(), st.randoms())
def test_nothing_is_lost_and_input_order_does_not_matter(hits, neighborhood, random):
    """The output is the input in another order, the same for every order of the input, and replays."""
    reranker = GraphReranker(min_mean_degree=0.0)
    done = reranker.rerank(hits, neighborhood)
    assert sorted(hit.id for hit in done) == sorted(hit.id for hit in hits)
    shuffled = list(hits)
    random.shuffle(shuffled)
    assert [hit.id for hit in reranker.rerank(shuffled, neighborhood)] == [hit.id for hit in done]
    assert list(done.records[0].order) == [hit.id for hit in done]
    assert all(0 <= hit.score <= 1 for hit in done)
    parts = done.records[0].parts
    assert all(hit.score == math.fsum(part[hit.id] for part in parts.values()) for hit in done)


@given(neighborhoods(), st.dictionaries(st.sampled_from(NAMES), st.floats(0.01, 5)))
def test_shares_of_the_walk_sum_to_one(neighborhood, starts):
    """PageRank is a distribution, also with dead ends and without starts."""
    found = GraphReranker().pagerank(neighborhood, starts)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-6)
    assert min(found.values()) >= 0


def test_a_central_article_wins_a_tie():
    """Of equally relevant hits the one that the others link to comes first."""
    links = (("a0", "a2", 1), ("a1", "a2", 1), ("a3", "a2", 1), ("a0", "a1", 1))
    neighborhood = Neighborhood(dict.fromkeys(NAMES[:4], 0), links)
    hits = [Hit(f"{name}#1", "t", 0.5, "vectors", {"article": name}) for name in NAMES[:4]]
    assert GraphReranker().rerank(hits, neighborhood)[0].id == "a2#1"


def test_centrality_is_off_for_sparse_graphs_with_a_note():
    """Below two links per article it counts for nothing, and the record tells why."""
    neighborhood = Neighborhood(dict.fromkeys(NAMES, 0), (("a0", "a1", 1),))
    hits = [Hit("a5#1", "t", 0.9, "vectors", {"article": "a5"}), Hit("a0#1", "t", 0.1, "vectors", {"article": "a0"})]
    done = GraphReranker().rerank(hits, neighborhood)
    assert [hit.id for hit in done] == ["a5#1", "a0#1"]
    assert "too sparse" in done.records[0].note
    assert done.records[0].parts["pagerank"]["a5#1"] == 0.0


@pytest.mark.parametrize("weights", [(0.9, 0.2), (1.1, -0.1), (0.0, 0.0)])
def test_weights_must_sum_to_one(weights):
    """Weights that do not sum to 1 are refused."""
    with pytest.raises(InputError, match="sum to 1"):
        GraphReranker(*weights)


def test_expansion_is_bounded(pack_file):
    """0 hops are the hits alone, more hops reach farther, and max_nodes holds."""
    pack = Pack.open(pack_file)
    assert set(expand(pack, ["pear.md"], hops=0).distance) == {"pear.md"}
    assert expand(pack, ["pear.md"], hops=1).distance == {"pear.md": 0, "apple-tree.md": 1, "apple.md": 1}
    assert len(expand(pack, ["pear.md"], hops=3).distance) == 6
    assert len(expand(pack, ["pear.md"], hops=3, max_nodes=4).distance) == 4
    for hops, nodes in ((4, 100), (-1, 100), (True, 100), (1, 0), (1, 101)):
        with pytest.raises(InputError):
            expand(pack, ["pear.md"], hops=hops, max_nodes=nodes)
    pack.close()
