"""Chunks: bounded, overlapping, at borders, and together the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.ingest.chunking import _WORD, ChunkSize, chunks

SENTENCES = [f"Sentence number {n} has exactly eight words here." for n in range(30)]


def count_words(text: str) -> int:
    return len(_WORD.findall(text))


def test_a_short_text_is_one_chunk() -> None:
    assert chunks("Just one line.", ChunkSize(200, 40)) == ["Just one line."]
    assert chunks("  \n ", ChunkSize(200, 40)) == []


def test_chunks_begin_and_end_with_sentences_and_share_some() -> None:
    """With room for 24 words and an overlap of 8, three sentences a chunk, one shared."""
    found = chunks(" ".join(SENTENCES), ChunkSize(24, 8))
    assert found[0] == " ".join(SENTENCES[0:3])
    assert found[1] == " ".join(SENTENCES[2:5])
    assert all(chunk.startswith("Sentence") and chunk.endswith("here.") for chunk in found)


def test_a_paragraph_border_is_a_border() -> None:
    text = "Title without a dot\n\nThe first paragraph\n\nThe second one"
    assert chunks(text, ChunkSize(4, 0)) == ["Title without a dot", "The first paragraph", "The second one"]


def test_an_endless_line_is_cut_between_words() -> None:
    """Tables, logs and minified text have no sentences; no chunk may exceed the size for that."""
    text = " ".join(f"w{n}" for n in range(1000))
    found = chunks(text, ChunkSize(100, 0))
    assert [count_words(chunk) for chunk in found] == [100] * 10
    assert " ".join(found) == text


def test_a_word_without_end_is_cut_too() -> None:
    """Data URLs and hashes in a row must not become one chunk of megabytes."""
    found = chunks("x" * 10_000, ChunkSize(10, 0))
    assert max(map(len, found)) == 400
    assert "".join(found) == "x" * 10_000


def test_scripts_without_spaces_are_counted_by_character() -> None:
    text = "東京は日本の首都です。" * 50
    found = chunks(text, ChunkSize(40, 10))
    assert len(found) > 10
    assert all(count_words(chunk) <= 40 for chunk in found)


@pytest.mark.parametrize(("words", "overlap"), [(0, 0), (-1, 0), (10, 10), (10, -1)])
def test_sizes_that_cannot_work_are_refused(words: int, overlap: int) -> None:
    with pytest.raises(InputError):
        chunks("text", ChunkSize(words, overlap))


TEXTS = st.text(alphabet="ab .!?\n\t-東。é", max_size=300)


@given(TEXTS, st.integers(1, 12), st.integers(0, 11))
def test_no_word_is_lost_and_no_chunk_is_too_long(text: str, words: int, overlap: int) -> None:
    """Every chunk is a stretch of the text of at most `words` words; together they hold all words."""
    found = chunks(text, ChunkSize(words, min(overlap, words - 1)))
    at = 0
    for chunk in found:
        assert chunk in text
        assert count_words(chunk) <= words
    for word in text.split():
        for character in word:
            if character.isalnum():
                at += 1
    assert sum(sum(c.isalnum() for c in chunk) for chunk in found) >= at
