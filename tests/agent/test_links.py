"""Links out of texts, and which article each one means."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.agent.articles import Article, article_keys, extract_links, href_keys, html_links, resolve_links


def resolved(*articles):
    """Return the links of (id, title, path, text) rows."""
    return resolve_links(
        Article(id, title, path, (), article_keys(id, title, path), extract_links(text, source=path)[1])
        for id, title, path, text in articles
    )


def test_link_syntax_is_removed_and_words_stay():
    """Wiki-links, Markdown links and images."""
    text = 'See [[Sea|the sea]], [[Lamp#Oil]] and [a map](../map.md "big"). ![photo](x.png)'
    assert extract_links(text, source="a/b.md")[0].strip() == "See the sea, Lamp and a map."


def test_paths_are_relative_to_the_file_that_links():
    """`../map.md` in a/b.md is map.md; anchors do not matter."""
    assert href_keys("../map.md#north", "a/b.md")[0] == "path:map.md"
    assert href_keys("/wiki/North_Sea", "x.html")[1] == "title:north sea"
    assert href_keys("https://en.example.org/wiki/North_Sea", "x.html") == ("title:north sea",)
    assert href_keys("mailto:a@b.c", "x.md") == ()
    assert href_keys("#top", "x.md") == ()
    assert href_keys("http://[broken", "x.md") == ()


def test_links_are_counted_without_links_to_the_article_itself():
    """Two mentions are one link of two; links to the article itself and to unknown articles are dropped."""
    found = resolved(
        ("a.md", "A lamp", "a.md", "[[Sea]] and [sea](sea.md), [[A lamp]], [[Nothing]]"),
        ("sea.md", "Sea", "sea.md", ""),
    )
    assert found == {("a.md", "sea.md"): 2}


def test_a_title_takes_precedence_over_a_file_name():
    """[[Oil]] means the article of that title, also when a file of another article is called so."""
    found = resolved(
        ("oil.md", "Lamp oil", "oil.md", ""), ("x.md", "Oil", "x.md", ""), ("y.md", "Y", "y.md", "[[oil]]")
    )
    assert found == {("y.md", "x.md"): 1}


def test_links_in_code_are_ignored():
    """Links in a code fence are examples, not links."""
    assert extract_links("```\n[[Sea]]\n```\n", source="a.md")[1] == ()


def test_links_in_navigation_are_ignored():
    """Menus and footers link everywhere and mean nothing, also when they are not closed."""
    page = "<nav><a href='x.md'>x</a></nav><p><a href='sea.md'>sea</a></p><footer><a href='y.md'>y"
    assert [keys[0] for keys in html_links(page, source="a.html")] == ["path:sea.md"]


@given(st.text(alphabet='[]()|!#<>"ab \n`', max_size=80))
def test_any_text_is_accepted(text):
    """No input breaks the patterns."""
    extract_links(text, source="a.md")


@pytest.mark.slow
def test_long_input_is_parsed_in_linear_time():
    """A megabyte of brackets is read in a moment."""
    for text in ("[[" * 300_000, "[a](" * 200_000, "![x](y" * 100_000, "[" * 500_000 + "]" * 500_000):
        started = time.process_time()
        extract_links(text, source="a.md")
        assert time.process_time() - started < 5
