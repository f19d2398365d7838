"""Words in any script, and BM25 over the pool itself."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.rerankers.semantic_bm25 import PoolBM25
from resift.text import words
from resift.text.analysis import plural_variants


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat's 2 hats.", ["the", "cat", "s", "2", "hats"]),
        ("snake_case", ["snake", "case"]),
        ("Ünïcödé STRASSE Straße", ["unicode", "strasse", "strasse"]),
        ("ﬁne ＡＢＣ", ["fine", "abc"]),
        ("Ελλάδα Ёлка", ["ελλαδα", "елка"]),
        ("量子力学", ["量子", "子力", "力学"]),
        ("水", ["水"]),
        ("東京 tower", ["東京", "tower"]),
        ("양자역학", ["양자", "자역", "역학"]),
        ("हिन्दी", ["हिन्दी"]),
        ("مرحبا بالعالم", ["مرحبا", "بالعالم"]),
        ("", []),
        ("…!?", []),
    ],
)
def test_words_of_any_script(text, expected):
    assert words(text) == expected


@given(st.text())
def test_words_do_not_depend_on_the_unicode_form(text):
    """Composed and decomposed spellings of one text have the same words."""
    import unicodedata

    assert words(unicodedata.normalize("NFC", text)) == words(unicodedata.normalize("NFD", text))


def test_singular_and_plural_match():
    assert "study" in plural_variants("studies")
    assert "studies" in plural_variants("study")
    assert "boxes" in plural_variants("box") or plural_variants("box") == ("box",)
    assert plural_variants("virus")[0] == "virus"
    assert plural_variants("水") == ("水",)


def by_hand(query_words, texts, k1=1.5, b=0.75):
    """The same score written out from the formula, word by word."""
    split = [text.split() for text in texts]
    average = sum(map(len, split)) / len(split)
    idf = {}
    for word in query_words:
        holding = max(1, sum(word in text for text in split))
        idf[word] = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
    scores = []
    for text in split:
        total = 0.0
        for word in query_words:
            tf = text.count(word)
            total += idf[word] * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(text) / average))
        scores.append(total / ((k1 + 1) * sum(idf.values())))
    return scores


@given(st.lists(st.lists(st.sampled_from(["x", "b", "c", "d", "e"]), min_size=1), min_size=1, max_size=6))
def test_scores_are_bm25_divided_by_its_maximum(pool):
    texts = [" ".join(tokens) for tokens in pool]
    assert PoolBM25(language="none").scores("x b z", texts) == pytest.approx(by_hand(["x", "b", "z"], texts))


@given(st.text(max_size=20), st.lists(st.text(max_size=40), max_size=8))
def test_scores_stay_between_0_and_1(query, texts):
    scores = PoolBM25().scores(query, texts)
    assert len(scores) == len(texts)
    assert all(0.0 <= score <= 1.0 for score in scores)


def test_the_best_of_a_bad_pool_stays_low():
    """One common word of eight is no good answer, whatever the others are."""
    query = "quantum mechanics governs subatomic particles in physical systems"
    bad = PoolBM25().scores(query, ["bread is baked in ovens", "cats sleep", "rain falls"])
    good = PoolBM25().scores(query, ["quantum mechanics governs subatomic particles", "cats sleep", "rain falls"])
    assert max(bad) < 0.1
    assert max(good) > 4 * max(bad)


def test_the_cache_of_word_counts_is_bounded(monkeypatch):
    monkeypatch.setattr("resift.rerankers.semantic_bm25.CACHED_TEXTS", 3)
    bm25 = PoolBM25()
    first = bm25.scores("x", [f"x {number}" for number in range(10)])
    assert bm25._cached_counts.cache_info().currsize == 3
    assert bm25.scores("x", [f"x {number}" for number in range(10)]) == first


@pytest.mark.parametrize("options", [{"k1": -1}, {"k1": math.nan}, {"b": 1.5}, {"b": -0.1}])
def test_invalid_parameters_are_refused(options):
    with pytest.raises(InputError, match="pass a number"):
        PoolBM25(**options)
