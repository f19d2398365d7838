"""MMR: relevant and unlike what is there already."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.ranking.shape import mmr
from resift.text import jaccard
from resift.text.tokenization import words
from tests.ranking.pools import everything, hit, pools, replays


def test_a_copy_yields_to_something_new():
    """The second best says the same as the best; the third says something else and goes first."""
    hits = [hit("a", 1.0, text="red car"), hit("b", 0.9, text="red car"), hit("c", 0.6, text="blue boat"), hit("d")]
    assert mmr(hits, k=2, trade_off=0.5).ids == ["a", "c", "b", "d"]


def test_vectors_decide_when_given():
    """With vectors the texts are not looked at."""
    hits = [hit("a", 1.0, text="same"), hit("b", 0.9, text="same"), hit("c", 0.8, text="same"), hit("d", 0.0)]
    vectors = {"a": [1.0, 0.0], "b": [2.0, 0.0], "c": [0.0, 3.0], "d": [0.0, 0.0]}
    assert mmr(hits, k=2, trade_off=0.5, vectors=vectors).ids[:2] == ["a", "c"]


def test_trade_off_of_1_changes_nothing():
    """Pure relevance is the order that came in."""
    hits = [hit("b", 0.5, text="x"), hit("a", 0.5, text="x")]
    assert mmr(hits, k=2, trade_off=1.0).ids == ["b", "a"]
    with pytest.raises(InputError):
        mmr(hits, k=2, trade_off=2.0)


def plain_mmr(hits, k, trade_off):
    """The textbook loop, without any saving."""
    scores = [one.score for one in hits]
    low, high = min(scores, default=0), max(scores, default=0)
    relevance = [(s - low) / (high - low) if high > low else 1.0 for s in scores]
    bags = [frozenset(words(one.text)) for one in hits]
    chosen, left = [], list(range(len(hits)))
    while left and len(chosen) < k:
        best, best_value = None, -math.inf
        for at in left:
            likeness = max((jaccard(bags[at], bags[one]) for one in chosen), default=0.0)
            value = trade_off * relevance[at] - (1 - trade_off) * likeness
            if value > best_value:
                best, best_value = at, value
        chosen.append(best)
        left.remove(best)
    return [hits[at].id for at in [*chosen, *left]]


@given(pools(), st.integers(0, 10), st.sampled_from([0.0, 0.3, 0.5, 0.7, 0.9]))
def test_lazy_greedy_equals_the_textbook(hits, k, trade_off):
    """Skipping comparisons changes nothing, ties included; nothing is lost, the record replays."""
    shaped = mmr(hits, k=k, trade_off=trade_off)
    assert shaped.ids == plain_mmr(hits, k, trade_off)
    assert everything(shaped) == sorted(one.id for one in hits)
    assert replays(shaped)
