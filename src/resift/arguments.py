"""What callers pass in as numbers: one check and one default for all entry points."""

from __future__ import annotations

from typing import Any

from resift.errors import InputError

DEFAULT_K = 10
"""How many hits an answer has where nobody said."""


def check_k(k: Any, *, name: str = "k", least: int = 0) -> int:
    """Return k, or raise InputError unless it is a whole number of at least `least`."""
    if isinstance(k, bool) or not isinstance(k, int) or k < least:
        raise InputError(f"{name} is {k!r}; ask for a whole number of hits ≥ {least}.")
    return k


def check_query(query: Any, *, empty: bool = False) -> str:
    """Return the query, or raise InputError unless it is a string with something in it (or `empty`)."""
    if not isinstance(query, str):
        raise InputError(f"The query is a {type(query).__name__}; pass a string.")
    if not empty and not query.strip():
        raise InputError("The query is empty; pass the words or the question to search for.")
    return query
