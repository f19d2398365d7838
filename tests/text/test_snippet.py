"""Snippets: the part of a text that has the words asked for, in any script, in linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.text import Analyzer, snippet

LIBRARY = (
    "The library opens at nine. Books go back after four weeks. You may keep a book longer if nobody else "
    "wants it! Fines are 20 cents a day."
)


def test_the_best_sentence_is_shown_with_its_span():
    found = snippet(LIBRARY, "how long may I keep a book?", length=60)
    assert found.text[slice(*found.best)].strip() == "You may keep a book longer if nobody else wants it!"
    assert "**keep** a **book**" in found.highlight()


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("東京の人口は約1400万人である。地下鉄が多い。", "人口", "**人口**"),
        ("Москва является столицей России.", "столица России", "**столицей** **России**"),
        ("เมืองหลวงของประเทศไทยคือกรุงเทพ", "เมืองหลวง", "**เมืองหลวง**"),
        ("Die Häuser der Stadt sind alt.", "Haus", "**Häuser**"),
        ("水が冷たい。", "水", "**水**"),
    ],
)
def test_words_match_as_in_keyword_search(text, query, marked):
    assert marked in snippet(text, query).highlight()


def test_without_a_match_the_snippet_is_the_beginning():
    found = snippet(LIBRARY, "xyzzy", length=40)
    assert found.text == "The library opens at nine. …"
    assert (found.matches, found.best) == ((), (0, 0))
    assert snippet("", "anything").text == snippet(" \n ", "anything").text == ""


def test_a_sentence_that_is_too_long_is_cut_around_its_matches():
    long = "filler " * 60 + "the needle and the thread " + "filler " * 60
    found = snippet(long, "needle thread", length=80)
    assert "**needle** and the **thread**" in found.highlight()
    assert found.text.startswith("… filler ")
    assert found.text.endswith("filler …")


@given(st.text(alphabet="ab. 人口!\n", max_size=80), st.text(alphabet="ab 人口", max_size=8), st.integers(4, 60))
def test_spans_hold_for_any_text(text, query, length):
    """Matches are in order, inside the line, without overlap; the line is from the text."""
    found = snippet(text, query, length=length)
    ends = [0]
    for start, end in found.matches:
        assert ends[-1] <= start < end <= len(found.text)
        ends.append(end)
    assert found.text.removeprefix("… ").removesuffix(" …") in " ".join(text.split())
    assert len(found.text) <= length + 4
    assert found == snippet(text, query, length=length, analyzer=Analyzer())


@pytest.mark.parametrize("unit", ["word ", "a", "人", ").", "a. ", "\n"])
@pytest.mark.slow
def test_a_megabyte_takes_little_time(unit):
    started = time.process_time()
    snippet(unit * (1_000_000 // len(unit)), "word 人口")
    assert time.process_time() - started < 1.5
