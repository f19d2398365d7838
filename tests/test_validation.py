"""Argument checks: annotations of public functions, and paths."""

# ruff: noqa: E501 - a table of arguments reads best in few lines
from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypedDict, Unpack

import pytest

from resift.errors import InputError
from resift.types import Hit
from resift.validation import accept_aliases, check_arguments, check_options, check_path, check_query, option


@check_arguments
def door(
    hits: Sequence[Hit],
    k: int = 1,
    *,
    share: float | None = None,
    mode: Literal["a", "b"] = "a",
    path: Path | str = "",
    names: Iterable[str] = (),
    where: Mapping[str, float] | None = None,
    pair: tuple[int, str] = (1, "x"),
    call: Callable[[], None] | None = None,
    unknown: Missing = None,  # noqa: F821 - a name that only type checkers know
) -> int:
    """Return how many hits there are."""
    return len(hits)


HITS = [Hit("a")]


@pytest.mark.parametrize(
    "good",
    [
        {"hits": (), "k": 0}, {"hits": HITS, "share": 1}, {"hits": HITS, "share": 0.5, "mode": "b"}, {"hits": HITS, "path": Path()},
        {"hits": HITS, "names": iter("ab")}, {"hits": HITS, "names": {"a"}}, {"hits": HITS, "where": {"a": 1}}, {"hits": HITS, "pair": (2, "y")},
        {"hits": HITS, "call": print}, {"hits": HITS, "unknown": object()},
    ],
)  # fmt: skip
def test_arguments_that_match_their_annotations_pass(good):
    assert door(**good) == len(good["hits"])


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("hits", None), ("hits", "ab"), ("hits", ["a"]), ("hits", 3), ("k", "3"), ("k", True), ("k", 2.5), ("k", None),
        ("share", "x"), ("share", True), ("mode", "c"), ("mode", []), ("path", 3), ("path", b"x"), ("names", "ab"), ("where", {1: 2.0}),
        ("where", {"a": "b"}), ("where", []), ("pair", (1,)), ("pair", ("x", 1)), ("call", 3),
    ],
)  # fmt: skip
def test_other_arguments_are_rejected_with_their_name(name, bad):
    with pytest.raises(InputError, match=rf"^door: {name} is .*; pass "):
        door(**{"hits": HITS, name: bad})


def test_messages_do_not_contain_the_text_of_an_argument():
    with pytest.raises(InputError) as caught:
        door(["a secret document"])
    assert "secret" not in str(caught.value)


def test_methods_coroutines_and_constructors_are_checked_too():
    class Box:
        @check_arguments
        def __init__(self, size: int) -> None:
            self.size = size

        @check_arguments
        async def grow(self, by: int) -> int:
            return self.size + by

    with pytest.raises(InputError, match="Box: size is a str"):
        Box("x")
    assert asyncio.run(Box(1).grow(2)) == 3
    with pytest.raises(InputError, match="by is"):
        asyncio.run(Box(1).grow("2"))
    with pytest.raises(TypeError, match="unexpected keyword"):
        Box(1, color="red")


class Further(TypedDict, total=False):
    timeout_s: float
    proxy: str | None


@check_arguments
def asks(address: str, **options: Unpack[Further]) -> dict[str, object]:
    return {"address": address, **options}


def test_keyword_options_are_checked_like_named_arguments():
    """A TypedDict of options is part of the signature: types are checked, other names refused."""
    assert asks("a", timeout_s=1, proxy=None) == {"address": "a", "timeout_s": 1, "proxy": None}
    with pytest.raises(InputError, match=r"asks: timeout_s is a str; pass float\."):
        asks("a", timeout_s="soon")
    with pytest.raises(TypeError, match="unexpected keyword argument 'retries'"):
        asks("a", retries=3)


@pytest.mark.parametrize("path", ["a/" * 2_100, "n" * 256, "folder/" + "ä" * 128 + "/x", "a\0b", "", None, 3, b"x"])
def test_impossible_paths_are_rejected(path):
    """Before a system says it in an error of its own: also one name in a path that is too long."""
    with pytest.raises(InputError, match="pass a path"):
        check_path(path, "The index file")


def test_long_paths_of_short_names_are_paths():
    """255 bytes to a name is what file systems take."""
    for path in ("n" * 255, "folder/" * 500 + "x", "ä" * 127):
        assert check_path(path, "The index file") == path


@accept_aliases
@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    min_depth: int = option("Minimum rerank depth.", default=6, min=1, aliases=("least",))

    def __post_init__(self) -> None:
        check_options(self)


def test_aliases_of_options_work_in_python_with_a_warning():
    """Old names are accepted by the constructor, by replace() and as attributes."""
    with pytest.warns(DeprecationWarning, match="min_depth"):
        depth = Depth(least=3)
    with pytest.warns(DeprecationWarning, match="min_depth"):
        assert depth.least == depth.min_depth == 3
    with pytest.warns(DeprecationWarning, match="min_depth"):
        assert replace(depth, least=4) == Depth(min_depth=4)
    with pytest.raises(InputError, match="min_depth is 0"):
        Depth(min_depth=0)


def test_messages_use_the_right_article():
    with pytest.raises(InputError, match=r"The query is an int; pass a string\."):
        check_query(3)
