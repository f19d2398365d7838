"""Folding: one slot for one text, and all provenance kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.ranking.shape import fold
from resift.text import jaccard
from resift.text.tokenization import words
from tests.ranking.pools import everything, hit, note, pools, replays


def test_same_text_from_two_sources_takes_one_slot():
    """The best placed copy stays, knows the other, and the other says why it is gone."""
    shaped = fold([hit("a", 0.9, text="Net  Income\nrose"), hit("b", 0.8, "EXCEL", text="net income rose")])
    assert shaped.ids == ["a"]
    assert shaped.kept[0].metadata["folded"] == [{"id": "b", "source": "store", "metadata": {"source_type": "EXCEL"}}]
    assert note(shaped, shaped.cut[0].id) == "same text as 'a'"


def test_hits_without_text_are_never_folded():
    """Two hits that only share their emptiness are two hits."""
    assert fold([hit("a"), hit("b", text="  ")]).ids == ["a", "b"]


def test_texts_that_only_begin_alike_stay_apart():
    """The quick comparison by first letters only saves time."""
    assert fold([hit("a", text="a long beginning, then x"), hit("b", text="a long beginning, then y")]).ids == [
        "a",
        "b",
    ]


def test_spaces_before_the_text_do_not_matter():
    """A page header of a hundred spaces changes nothing."""
    assert fold([hit("a", text=" " * 100 + "the text itself"), hit("b", text="the text itself")]).ids == ["a"]


def test_near_duplicates_by_words():
    """Nine of ten words shared is near enough at 0.8, and not at 0.95."""
    left = "one two three four five six seven eight nine ten"
    right = left.replace("ten", "eleven")
    hits = [hit("a", text=left), hit("b", text=right)]
    assert fold(hits, threshold=0.8).ids == ["a"]
    assert fold(hits, threshold=0.95).ids == ["a", "b"]
    with pytest.raises(InputError):
        fold(hits, threshold=0)


@given(pools(), st.sampled_from([1.0, 0.8, 0.5]))
def test_folding_loses_nothing_and_is_idempotent(hits, threshold):
    """Every hit is kept or cut, leaders keep their order, a second fold finds nothing."""
    once = fold(hits, threshold=threshold)
    assert everything(once) == sorted(one.id for one in hits)
    assert replays(once)
    twice = fold(once.kept, threshold=threshold)
    assert (twice.ids, twice.cut) == (once.ids, ())
    told = [one["id"] for kept in once.kept for one in kept.metadata.get("folded", ())]
    assert sorted(told) == sorted(one.id for one in once.cut)


WORDS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8).map(" ".join)


@given(st.lists(WORDS, max_size=10), st.sampled_from([0.3, 0.5, 0.75, 0.9]))
def test_prefix_filter_finds_what_comparing_all_pairs_finds(texts, threshold):
    """The quick way and the plain way fold the same hits."""
    leaders = []
    for at, text in enumerate(texts):
        if not any(jaccard(frozenset(words(texts[one])), frozenset(words(text))) >= threshold for one in leaders):
            leaders.append(at)
    hits = [hit(f"h{at:02}", text=text) for at, text in enumerate(texts)]
    assert fold(hits, threshold=threshold).ids == [f"h{at:02}" for at in leaders]
