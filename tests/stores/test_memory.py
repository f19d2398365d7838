"""MemoryStore, the reference: its numbers are worked out by hand here."""

# ruff: noqa: E501 - cases read best on one line
from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from resift.errors import InputError, StoreError
from resift.stores.filters import canonical_text, matches
from resift.stores.memory import MemoryStore
from resift.text.analysis import BM25, idf
from tests.stores.factories import HashingEmbedder


def test_bm25_by_hand() -> None:
    """Two documents of 2 and 4 words, one holds the term twice: Robertson's formula, Lucene's idf."""
    store = MemoryStore()
    asyncio.run(store.add([{"id": "a", "text": "bamboo forest"}, {"id": "b", "text": "tall grass bamboo bamboo"}]))
    rarity = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    (hit,) = asyncio.run(store.search("forest", k=2))
    assert hit.score == pytest.approx(rarity * 1 * 1.9 / (1 + 0.9 * (0.6 + 0.4 * 2 / 3)))
    both = {hit.id: hit.score for hit in asyncio.run(store.search("bamboo", k=2))}
    rarity = math.log(1 + (2 - 2 + 0.5) / (2 + 0.5))
    assert both["b"] == pytest.approx(rarity * 2 * 1.9 / (2 + 0.9 * (0.6 + 0.4 * 4 / 3)))


def test_more_matching_words_never_hurt() -> None:
    """The idf stays positive even for a word that every document has."""
    assert idf(10, 10) > 0
    assert BM25().weight(1, 5, idf=idf(10, 10), mean_length=5.0) > 0


def test_hybrid_is_rrf_60_of_both_sides() -> None:
    """A document first by words and first by vectors scores 2/61."""
    store = MemoryStore(HashingEmbedder(), mode="hybrid")
    asyncio.run(store.add([{"id": "a", "text": "pandas eat bamboo"}, {"id": "b", "text": "trains"}]))
    first = asyncio.run(store.search("pandas bamboo", k=2))[0]
    assert (first.id, first.score) == ("a", pytest.approx(2 / 61))


def test_modes_are_checked() -> None:
    with pytest.raises(InputError, match="'hybrid', 'text' or 'vector'"):
        MemoryStore(mode="both")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs vectors"):
        MemoryStore(mode="vector")


class WrongEmbedder:
    """Returns whatever it was given."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def embed(self, texts: Any, *, kind: str) -> Any:
        return self.answer


@pytest.mark.parametrize("answer", [[[1.0]], [1.0, 2.0], [[math.nan], [1.0]], [[], []]])
def test_an_embedder_that_answers_wrongly_is_a_store_error(answer: Any) -> None:
    """Too few rows, no rows at all, NaN, no dimensions: refused before anything is stored."""
    store = MemoryStore(WrongEmbedder(answer))
    with pytest.raises(StoreError, match="embedder"):
        asyncio.run(store.add([{"id": "a", "text": "x"}, {"id": "b", "text": "y"}]))
    assert asyncio.run(store.count()) == 0


@pytest.mark.parametrize(("a", "b", "equal"), [(1, 1.0, True), (1, True, False), (1, "1", False), ("x" * 500, "x" * 500, True), ("x" * 500, "x" * 499 + "y", False)])  # fmt: skip
def test_equal_values_have_equal_keys(a: Any, b: Any, equal: bool) -> None:
    """Filters compare by these keys in every store."""
    assert (canonical_text(a) == canonical_text(b)) is equal
    assert matches({"key": a}, {"key": b}) is equal
