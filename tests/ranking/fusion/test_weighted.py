"""Weighted fusion: z-scores over the pool, each list with its learned weight."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift import Hit
from resift.ranking.fusion.weighted import WeightedReranker, weighted
from resift.ranking.order_model import CODE_DENSITY, MIN_CODE_DENSITY, default_model

BOTH = ["lexical", "dense"]


def ranked(source, pairs, text=""):
    return [Hit(id, text, score, source) for id, score in pairs]


WORDS = ranked("words", [("a", 9.0), ("b", 8.0), ("c", 1.0)])
MEANING = ranked("meaning", [("c", 0.9), ("d", 0.5), ("a", 0.45)])


def order(*args, **options):
    return [hit.id for hit in weighted(*args, **options)]


def test_parts_add_up_and_the_weights_are_recorded():
    """Each total is the sum of its parts, and the record has the weight of each list."""
    fused = weighted([WORDS, MEANING], retrieval_modes=BOTH)
    record = fused.records[0]
    dense = default_model().dense.base
    assert dict(record.weights) == {"words": pytest.approx(1 - dense), "meaning": pytest.approx(dense)}
    assert record.note == f"words weight {1 - dense:.2g}, meaning weight {dense:.2g}"
    for hit in fused:
        assert hit.score == pytest.approx(sum(column.get(hit.id, 0.0) for column in record.parts.values()))


def test_vector_search_weighs_more_for_code():
    """The more, the better its scores agree with those of keyword search; prose has a fixed weight."""
    code = "self.x[i] = f(a, b); return {k: v[0]} " * 9
    words = ranked("words", [("a", 9.0), ("b", 3.0), ("c", 2.0), ("d", 1.9)], code)
    agreeing = ranked("meaning", [("a", 0.9), ("b", 0.4), ("c", 0.3), ("d", 0.1)], code)
    contrary = ranked("meaning", [("d", 0.9), ("c", 0.4), ("b", 0.3), ("a", 0.1)], code)
    fused = weighted([words, agreeing], retrieval_modes=BOTH)
    assert fused.records[0].evidence[CODE_DENSITY] > MIN_CODE_DENSITY
    assert "signs of code" in fused.records[0].note
    weights = [
        weighted([words, other], retrieval_modes=BOTH, facts=facts).records[0].weights["meaning"]
        for other, facts in ((agreeing, None), (contrary, None), (agreeing, {CODE_DENSITY: 0.1}))
    ]
    assert weights[0] > weights[2] > weights[1]
    assert weights[2] == pytest.approx(default_model().dense.base)


RUSSIAN = "Этот код вернёт целочисленное представление даты для каждого каталога. " * 5


def test_vectors_of_an_unknown_script_do_not_count():
    """An English embedder leaves Russian to keyword search; a multilingual one counts as usual."""
    words = ranked("words", [("a", 9.0), ("b", 3.0)], RUSSIAN)
    meaning = ranked("meaning", [("c", 0.9), ("d", 0.8), ("b", 0.45), ("a", 0.1)], RUSSIAN)
    lists = {"query": "дата каталога", "retrieval_modes": BOTH}
    english = weighted([words, meaning], languages=["any", ("en",)], **lists)
    assert [hit.id for hit in english] == ["a", "b", "c", "d"], "hits without keyword match keep an order"
    assert "meaning weight 0: the model of meaning was not trained on this script" in english.records[0].note
    for languages in ("any", ("en", "ru")):
        fused = weighted([words, meaning], languages=["any", languages], **lists)
        assert fused.records[0].weights["meaning"] == pytest.approx(default_model().dense.base)
    alone = weighted([[], meaning], languages=["any", ("en",)], **lists)
    assert [hit.id for hit in alone] == ["c", "d", "b", "a"]


scores = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0]), min_size=1, max_size=8)


@given(words=scores, meaning=scores, factor=st.sampled_from([0.5, 4.0]), shift=st.sampled_from([-8.0, 16.0]))
def test_scale_and_shift_of_a_stores_scores_change_nothing(words, meaning, factor, shift):
    """Scores may have any unit, and those of vectors any zero."""
    one = ranked("words", [(f"h{at}", score) for at, score in enumerate(sorted(words, reverse=True))])
    pairs = [(f"h{2 * at}", score) for at, score in enumerate(sorted(meaning, reverse=True))]
    other = ranked("meaning", pairs)
    moved = ranked("meaning", [(id, factor * score + shift) for id, score in pairs])
    scaled = ranked("words", [(hit.id, factor * hit.score) for hit in one])
    straight = {hit.id: hit.score for hit in weighted([one, other], retrieval_modes=BOTH)}
    turned = {hit.id: hit.score for hit in weighted([scaled, moved], retrieval_modes=BOTH)}
    assert turned == pytest.approx(straight, abs=1e-9)


@given(words=scores, meaning=scores)
def test_a_repeated_list_counts_once(words, meaning):
    """Two stores with equal results do not outvote a third."""
    one = ranked("one", [(f"h{at}", score) for at, score in enumerate(sorted(words, reverse=True))])
    again = ranked("again", [(hit.id, hit.score) for hit in one])
    other = ranked("other", [(f"h{2 * at}", score) for at, score in enumerate(sorted(meaning, reverse=True))])
    modes = ["lexical", "lexical", "dense"]
    assert order([one, again, other], retrieval_modes=modes) == order([one, other], retrieval_modes=BOTH)


def test_an_empty_list_changes_nothing():
    """A store without results does not change the weights of the others."""
    with_empty = weighted([WORDS, [], MEANING], retrieval_modes=["lexical", "graph", "dense"])
    assert [(hit.id, hit.score) for hit in with_empty] == [
        (hit.id, hit.score) for hit in weighted([WORDS, MEANING], retrieval_modes=BOTH)
    ]
    assert weighted([]) == []
    assert weighted([[], []], retrieval_modes=BOTH) == []


def test_a_short_keyword_list_has_no_further_matches():
    """Two keyword hits and a long vector list: the second one ranks above hits without a query word."""
    meaning = ranked("meaning", [(id, 0.9 - at / 100) for at, id in enumerate("abcdefgh")])
    few = ranked("words", [("h", 3.0), ("g", 2.9)])
    found = order([few, meaning], retrieval_modes=BOTH)
    assert found.index("g") < found.index("c")
    # A list as long as the others may have further matches: g then ranks last.
    full = order([few, meaning[:2]], retrieval_modes=BOTH)
    assert full[-1] == "g"


def test_equal_scores_are_replaced_by_ranks():
    """Stores with equal scores, or none, still have an order."""
    equal = ranked("equal", [("x", 1.0), ("y", 1.0), ("z", 1.0)])
    silent = ranked("silent", [("x", None), ("y", None), ("z", None)])
    assert order([equal]) == ["x", "y", "z"]
    assert order([silent]) == ["x", "y", "z"]
    assert order([equal, silent]) == ["x", "y", "z"]


def test_a_list_with_missing_scores_is_fused_by_ranks():
    """A missing score does not mean that the hit is the last one."""
    some = ranked("graph", [("a", 9.0), ("b", None), ("c", 8.9)])
    none = ranked("graph", [("a", None), ("b", None), ("c", None)])
    fused = [
        [(hit.id, hit.score) for hit in weighted([ranks, MEANING], retrieval_modes=["", "dense"])]
        for ranks in (some, none)
    ]
    assert fused[0] == fused[1]


def test_disjoint_lists_of_one_mode_are_parts_of_one_collection():
    """Lists of one retrieval mode without shared hits: the best source ranks first."""
    news = ranked("news", [("n1", 0.9), ("n2", 0.85), ("n3", 0.4)])
    law = ranked("law", [("l1", 0.5), ("l2", 0.45), ("l3", 0.41)])
    chat = ranked("chat", [("c1", 0.55), ("c2", 0.3)])
    together = order([news, law, chat], retrieval_modes=["dense"] * 3)
    assert together[:2] == ["n1", "n2"]
    assert together.index("c1") < together.index("l1") < together.index("n3")
    # Unknown scales are not compared: the first of each list ranks before the last of any list.
    apart = order([news, law, chat])
    assert {"n1", "l1", "c1"} & set(apart[:3]) >= {"l1", "n1"}


def test_the_matching_source_ranks_first_despite_a_large_score_gap():
    """Its last hit scores above the best of the other sources, which are still parts of one collection."""
    news = ranked("news", [("n1", 30.0), ("n2", 25.0), ("n3", 18.0)])
    law = ranked("law", [("l1", 6.0), ("l2", 5.0)])
    chat = ranked("chat", [("c1", 9.0), ("c2", 2.0)])
    assert order([news, law, chat], retrieval_modes=["lexical"] * 3) == ["n1", "n2", "n3", "c1", "l1", "l2", "c2"]
    # A hundred times the scores is another scale.
    other = ranked("law", [("l1", 6000.0), ("l2", 5000.0)])
    assert set(order([news, other], retrieval_modes=["lexical"] * 2)[:2]) == {"l1", "n1"}


def test_four_stores_with_different_scales_fuse():
    """Words, vectors, a graph without scores and a store of unknown scale in one order."""
    graph = ranked("graph", [("d", None), ("a", None)])
    other = ranked("other", [("d", 1200.0), ("b", 3.0)])
    fused = weighted([WORDS, MEANING, graph, other], retrieval_modes=["lexical", "dense", "graph", "search"])
    assert {hit.id for hit in fused} == {"a", "b", "c", "d"}
    assert sum(fused.records[0].weights.values()) == pytest.approx(1)


def test_custom_weights_multiply_the_learned_ones():
    """A weight of 0 ignores a list, and a larger one changes the order."""
    assert order([WORDS, MEANING], retrieval_modes=BOTH, weights=[1, 0]) == order([WORDS], retrieval_modes=["lexical"])
    assert order([WORDS, MEANING], retrieval_modes=BOTH, weights=[1, 9])[0] == "c"


def test_the_reranker_passes_its_arguments_to_weighted():
    """A pipeline calls it this way."""
    fused = asyncio.run(WeightedReranker(dense_weight=1.0).fuse([WORDS, MEANING], k=2, retrieval_modes=BOTH))
    assert [hit.id for hit in fused] == ["c", "d"]


def test_overlapping_or_unscored_lists_are_separate_collections():
    """Only disjoint lists with all scores are parts of one collection."""
    x = [Hit("a", score=9.0, source="x"), Hit("d", score=2.0, source="x")]
    apart = [x, [Hit("b", score=8.0, source="y"), Hit("c", score=1.0, source="y")]]
    shared = [*apart[:1], [Hit("a", score=8.0, source="y"), Hit("c", score=1.0, source="y")]]
    unscored = [*apart[:1], [Hit("b", source="y"), Hit("c", source="y")]]
    modes = ["lexical", "lexical"]
    assert weighted(apart, retrieval_modes=modes).records[0].weights == {"x": 1.0, "y": 1.0}
    for lists in (shared, unscored):
        weights = weighted(lists, retrieval_modes=modes).records[0].weights
        assert weights == {"x": 0.5, "y": 0.5}
