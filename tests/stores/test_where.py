"""Filters: what people type, what it means, and that SQLite's filter is the reference's."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.stores.filters import Pattern, matches, parse_shell_filter
from resift.stores.sqlite import SQLiteStore

VALUES = st.one_of(
    st.sampled_from([True, False, 0, 1, 1.0, -1, 2.5, 10**30, 2**63, -(2**63), "", "1", "a", "ab", "b*", "x?[y]"]),
    st.sampled_from(["2024-01-01", "2024-01-01T12:00:00", "2024-01-02", "a" * 300, "a" * 299 + "b"]),
)
METADATA = VALUES | st.lists(VALUES, max_size=4)
OPERANDS = VALUES.filter(lambda value: not isinstance(value, bool))
TESTS = st.one_of(
    VALUES,
    st.sampled_from(["a*", "*", "*b", "x?[*", "a" * 150 + "*b"]),
    st.lists(VALUES, max_size=2),
    st.dictionaries(st.sampled_from([">", ">=", "<", "<="]), OPERANDS, min_size=1, max_size=2),
    st.dictionaries(st.sampled_from(["=", "!="]), VALUES | st.lists(VALUES, max_size=2), min_size=1, max_size=2),
)
FILTERS = st.recursive(
    st.dictionaries(st.sampled_from("ab"), TESTS, max_size=2),
    lambda part: st.fixed_dictionaries({"or": st.lists(part, min_size=1, max_size=2)}, optional={"a": TESTS}),
    max_leaves=3,
)


@given(
    st.lists(st.dictionaries(st.sampled_from("ab"), METADATA), min_size=1, max_size=12),
    st.lists(FILTERS, min_size=5, max_size=15),
)
def test_sqlite_filters_as_the_reference_does(rows: list[dict[str, Any]], wheres: list[dict[str, Any]]) -> None:
    """For any metadata and any filter the same documents pass."""

    async def body() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = SQLiteStore(Path(folder) / "a.db", create=True)
            await store.add([{"id": f"{n:02}", "text": "x", "metadata": row} for n, row in enumerate(rows)])
            for where in wheres:
                expected = [f"{n:02}" for n, row in enumerate(rows) if matches(row, where)]
                assert await store.ids(where) == expected
            assert await store.verify() == []
            await store.close()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("typed", "metadata", "passes"),
    [
        (["topic in food, drink"], {"topic": "drink"}, True),
        (["topic in food, drink"], {"topic": "wood"}, False),
        (["price in 7.5,120"], {"price": 120}, True),
        (["path in *.md,*.txt"], {"path": "a/b.txt"}, True),
        (["price=12"], {"price": 12}, True),
        (["price=12"], {"price": "12"}, True),
        (["price=12"], {"price": 13}, False),
        (["price>10", "price<=12"], {"price": 12}, True),
        (["price>10"], {"price": "no number"}, False),
        (["price != 12"], {"price": 13}, True),
        (["done=true"], {"done": True}, True),
        (["topic=food", "topic=drink"], {"topic": "drink"}, True),
        (["path=docs/*.md"], {"path": "docs/a/b.md"}, True),
        (["day>=2024-05-01", "day<2024-06-01"], {"day": "2024-05-31T23:59:00"}, True),
        (["note=a=b"], {"note": "a=b"}, True),
        (["title=a title"], {"title": "a title"}, True),
        (["price<=-3"], {"price": -4}, True),
        (["price>= 3"], {"price": 3}, True),
        (["note=<3"], {"note": "<3"}, True),
        (["topic="], {"topic": ""}, True),
    ],
)
def test_what_is_typed_in_a_shell(typed: list[str], metadata: dict[str, Any], passes: bool) -> None:
    """Numbers, dates, patterns and comparisons, as text and as values."""
    assert matches(metadata, parse_shell_filter(typed)) is passes


@pytest.mark.parametrize(
    "typed", ["", "topic", "=food", ">5", "price>true", "price>", "price<<3", "price>==3", "price<>3", "topic==food"]
)
def test_what_is_no_filter_is_refused(typed: str) -> None:
    """The message shows how to write one."""
    with pytest.raises(InputError):
        parse_shell_filter([typed])


def test_dates_and_patterns_by_hand() -> None:
    """A limit without a time is a whole day; patterns take time in proportion to their length."""
    assert matches({"day": "2024-05-01T10:00:00+02:00"}, {"day": {"<=": date(2024, 5, 1)}})
    assert not matches({"day": "tomorrow"}, {"day": {">": "2024-05-01"}})
    assert Pattern("*a" * 200 + "*").accepts("a" * 200)
    assert not Pattern("*a" * 2000 + "b").accepts("a" * 100_000)
    assert Pattern("a*c").accepts("abc")
    assert not Pattern("ab*bc").accepts("abc")


def test_a_filter_nested_too_deeply_is_refused() -> None:
    """Python's own recursion limit ended in a RecursionError."""
    where: dict[str, Any] = {"topic": "food"}
    for _ in range(100):
        where = {"or": [where, {"topic": "x"}]}
    assert matches({"topic": "food"}, where)
    for _ in range(3_000):
        where = {"or": [where]}
    with pytest.raises(InputError, match="100 levels"):
        matches({"topic": "food"}, where)


def test_metadata_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    metadata: dict[str, Any] = {}
    for _ in range(3_000):
        metadata = {"a": metadata}
    store = SQLiteStore(tmp_path / "x.db", create=True)
    with pytest.raises(InputError, match="Not JSON"):
        asyncio.run(store.add([{"id": "a", "text": "b", "metadata": metadata}]))
    asyncio.run(store.close())
