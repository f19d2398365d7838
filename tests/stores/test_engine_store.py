"""The shape that engines share: tags filter as `matches` does, documents survive, ties are cut by id."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from resift.stores.engine_store import EngineFilter, EngineRow, Record, fetch_rows, make_tags, read_record
from resift.stores.filters import matches, passes_all
from resift.text import Analyzer
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
    """A document has a tag of every group and passes the tests exactly when its metadata matches."""
    tags = set(make_tags(metadata))
    wanted = EngineFilter.parse(where)
    found = all(tags & set(group) for group in wanted.groups) and passes_all(metadata, wanted.tests)
    assert found == matches(metadata, where)


@given(st.text(min_size=1), st.text(), st.dictionaries(st.text(), st.none() | SCALARS | st.lists(SCALARS)))
def test_a_document_survives_any_engine(id: str, text: str, metadata: dict[str, Any]) -> None:
    """Its record is plain ASCII without control characters, and gives back the same document."""
    record = Record.from_hit(Hit(id, text, metadata=metadata), [], None)
    assert record.document.isascii()
    assert record.document.isprintable()
    held = read_record(record.document, source="s")
    assert (held.id, held.text, held.metadata) == (id, text, metadata)


@given(st.text())
def test_words_have_nothing_to_quote(text: str) -> None:
    """No quotes, spaces or control characters, and of bounded length, whatever the text."""
    terms = Analyzer().terms(text)
    assert all(len(term) <= 100 and not set(term) & set("'\\\0 \n") for term in terms)


@given(st.lists(st.sampled_from([0.5, 0.4999999, 0.3]), max_size=300), st.integers(1, 50))
def test_all_rows_that_could_tie_with_the_last_are_fetched(scores: list[float], k: int) -> None:
    """What is left behind is clearly worse than the k-th."""
    scores.sort(reverse=True)
    rows = [EngineRow("", score) for score in scores]

    async def fetch(limit: int) -> list[EngineRow]:
        return rows[:limit]

    fetched = asyncio.run(fetch_rows(fetch, k))
    left = scores[len(fetched) :]
    assert len(fetched) >= min(k, len(rows))
    assert all(score < scores[k - 1] - 1e-6 for score in left)
