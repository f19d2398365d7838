"""What callers pass in: one check for each kind of argument, at every door, and defaults that doors share.

Each returns what it was given, or raises InputError with the value, what is allowed and what to do.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from resift.errors import InputError, did_you_mean

T = TypeVar("T")

_LONGEST_PATH = 4096
"""Bytes: more than this, no system of today takes."""

DEFAULT_K = 10
"""How many hits an answer has where nobody said."""


def check_k(k: Any, *, name: str = "k", least: int = 0) -> int:
    """Return k, or raise InputError unless it is a whole number of at least `least`."""
    if isinstance(k, bool) or not isinstance(k, int) or k < least:
        raise InputError(f"{name} is {_shown(k)}; ask for a whole number of hits ≥ {least}.")
    return k


def check_query(query: Any, *, empty: bool = False) -> str:
    """Return the query, or raise InputError unless it is a string with something in it (or `empty`)."""
    if not isinstance(query, str):
        raise InputError(f"The query is a {type(query).__name__}; pass a string.")
    if not empty and not query.strip():
        raise InputError("The query is empty; pass the words or the question to search for.")
    return query


def check_number(value: Any, name: str, *, above: float | None = None, below: float | None = None) -> float:
    """Return a finite number between the bounds, which are not included."""
    number = _number(value)
    inside = (above is None or number > above) and (below is None or number < below)
    if not math.isfinite(number) or not inside:
        bounds = [f"above {above:g}"] if above is not None else []
        bounds += [f"below {below:g}"] if below is not None else []
        raise InputError(
            f"{name} is {_shown(value)}; pass a number{' ' if bounds else ''}{' and '.join(bounds)}."
        )
    return number


def check_seconds(value: Any, name: str = "deadline_s") -> float | None:
    """Return seconds of 0 or more; None means no limit."""
    if value is None:
        return None
    number = _number(value)
    if math.isnan(number) or number < 0:
        raise InputError(f"{name} is {_shown(value)}; pass seconds ≥ 0, or None for no limit.")
    return number


def check_path(value: Any, name: str) -> str:
    """Return a path as text; refuses what no file can be called."""
    if (
        not isinstance(value, (str, os.PathLike))
        or isinstance(os.fspath(value), bytes)
        or not os.fspath(value)
    ):
        raise InputError(f"{name} is {_shown(value)}; pass a path.")
    path = str(os.fspath(value))
    try:
        whole = "\0" not in path and 0 < len(os.fsencode(path)) < _LONGEST_PATH
    except UnicodeEncodeError:
        whole = False
    if not whole:
        raise InputError(
            f"{name} is too long for a path, or holds characters that none can have; pass a path."
        )
    return path


def check_choice(value: Any, choices: Collection[str], what: str) -> str:
    """Return one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"Unknown {what} {_shown(value)}. {did_you_mean(str(value), choices)}")
    return value


def check_items(value: Iterable[T], name: str, of: str) -> list[T]:
    """Return the items as a list; one string or one mapping is a mistake, not a list of its parts."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InputError(f"{name} is one {type(value).__name__}; pass a list of {of}.")
    return list(value)


def check_mapping(value: Any, name: str) -> Mapping[str, Any] | None:
    """Return a mapping, or None."""
    if value is not None and not isinstance(value, Mapping):
        raise InputError(f"{name} is a {type(value).__name__}; pass a dict.")
    return value


def check_text(value: Any, name: str) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise InputError(f"{name} is a {type(value).__name__}; pass a string.")
    return value


def check_callable(value: T, name: str, what: str) -> T:
    """Return what can be called."""
    if not callable(value):
        raise InputError(f"{name} is a {type(value).__name__}; pass {what}.")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _shown(value: Any) -> str:
    """Return a value for a message; what may be a document is named by its type alone."""
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number of many digits"
    if value is None or isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= 40):
        return repr(value)
    return f"a {type(value).__name__}"
