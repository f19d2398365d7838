"""The shape that engines share: tags filter as `matches` does, documents survive, ties are cut by id."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from resift.stores.filtering import matches
from resift.stores.records import Record, Row, document_hit, enough, index_words, tag_groups, tags_of
from resift.types import Hit

SCALARS = st.one_of(
    st.sampled_from([True, False, 0, 1, 1.0, "1", "True", "", "a' OR '1'='1", 10**30, -0.0]),
    st.text(max_size=3),
)
METADATA = st.dictionaries(st.sampled_from(["a", "b", "a.b", "'; --"]), SCALARS, max_size=3)


@given(
    METADATA,
    st.dictionaries(
        st.sampled_from(["a", "b", "a.b", "'; --"]), SCALARS | st.lists(SCALARS, max_size=2), max_size=2
    ),
)
def test_tags_filter_as_the_reference_does(metadata: dict[str, Any], where: dict[str, Any]) -> None:
    """A document has a tag of every group exactly when its metadata matches."""
    tags = set(tags_of(metadata))
    assert all(tags & set(group) for group in tag_groups(where)) == matches(metadata, where)


@given(st.text(min_size=1), st.text(), st.dictionaries(st.text(), st.none() | SCALARS | st.lists(SCALARS)))
def test_a_document_survives_any_engine(id: str, text: str, metadata: dict[str, Any]) -> None:
    """Its record is plain ASCII without control characters, and gives back the same document."""
    record = Record.of(Hit(id, text, metadata=metadata), None)
    assert record.document.isascii()
    assert record.document.isprintable()
    held = document_hit(record.document, source="s")
    assert (held.id, held.text, held.metadata) == (id, text, metadata)


@given(st.text())
def test_words_have_nothing_to_quote(text: str) -> None:
    """Letters and digits only, of bounded length, whatever the text."""
    assert all(word.isalnum() and len(word) <= 100 for word in index_words(text))


@given(st.lists(st.sampled_from([0.5, 0.4999999, 0.3]), max_size=300), st.integers(1, 50))
def test_all_rows_that_could_tie_with_the_last_are_fetched(scores: list[float], k: int) -> None:
    """What is left behind is clearly worse than the k-th."""
    scores.sort(reverse=True)
    rows = [Row("", score) for score in scores]

    async def fetch(limit: int) -> list[Row]:
        return rows[:limit]

    fetched = asyncio.run(enough(fetch, k))
    left = scores[len(fetched) :]
    assert len(fetched) >= min(k, len(rows))
    assert all(score < scores[k - 1] - 1e-6 for score in left)
