"""The shape that engines share: tags filter as `matches` does, documents survive, ties are cut by id."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from resift.stores.backend import EngineStore, Record, Row, TableNotes, make_tags, tag_groups
from resift.stores.filters import matches, parse_filter, passes_all
from resift.text import Analyzer
from resift.types import Hit

SCALARS = st.one_of(
    st.sampled_from([True, False, 0, 1, 1.0, "1", "True", "", "a' OR '1'='1", 10**30, -0.0]), st.text(max_size=3)
)
METADATA = st.dictionaries(st.sampled_from(["a", "b", "a.b", "'; --"]), SCALARS, max_size=3)


@given(
    METADATA,
    st.dictionaries(st.sampled_from(["a", "b", "a.b", "'; --"]), SCALARS | st.lists(SCALARS, max_size=2), max_size=2),
)
def test_tags_filter_as_the_reference_does(metadata: dict[str, Any], where: dict[str, Any]) -> None:
    """A document has a tag of every group and passes the tests exactly when its metadata matches."""
    tags = set(make_tags(metadata))
    tests = parse_filter(where)
    has_tags = all(tags & set(group) for group in tag_groups(tests))
    assert has_tags or not matches(metadata, where)
    assert (has_tags and passes_all(metadata, tests)) == matches(metadata, where)


@given(st.text(min_size=1), st.text(), st.dictionaries(st.text(), st.none() | SCALARS | st.lists(SCALARS)))
def test_a_document_survives_any_engine(id: str, text: str, metadata: dict[str, Any]) -> None:
    """Its record is plain ASCII without control characters, and gives back the same document."""
    record = Record.from_hit(Hit(id, text, metadata=metadata), [], None)
    assert record.document.isascii()
    assert record.document.isprintable()
    assert json.loads(record.document) == {"id": id, "text": text, "metadata": metadata}


@given(st.text())
def test_words_have_nothing_to_quote(text: str) -> None:
    """No quotes, spaces or control characters, and of bounded length, whatever the text."""
    terms = Analyzer().terms(text)
    assert all(len(term) <= 100 and not set(term) & set("'\\\0 \n") for term in terms)


class Rows(EngineStore):
    """An engine that returns given rows."""

    def __init__(self, scores: list[float]) -> None:
        super().__init__("rows", None, "text", threads=1)
        self.rows = [Row({"id": f"{n:03}", "text": "", "metadata": {}}, score) for n, score in enumerate(scores)]
        self.fetched = 0

    async def _read_notes(self) -> TableNotes:
        return TableNotes("auto", "2")

    async def _fetch_matching(self, terms: list[str], groups: list[list[str]], limit: int) -> list[Row]:
        self.fetched = min(limit, len(self.rows))
        return self.rows[:limit]


@given(st.lists(st.sampled_from([0.5, 0.4999999, 0.3]), max_size=300), st.integers(1, 50))
def test_all_rows_that_could_tie_with_the_last_are_fetched(scores: list[float], k: int) -> None:
    """What is left behind is clearly worse than the k-th."""
    store = Rows(sorted(scores, reverse=True))
    hits = asyncio.run(store.search("word", k=k))
    assert [hit.score for hit in hits] == sorted(scores, reverse=True)[:k]
    assert all(row.score < hits[-1].score - 1e-6 for row in store.rows[store.fetched :])
