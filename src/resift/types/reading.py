"""Plain data back to values: every field is checked for its type, so that a file brings in nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from resift.errors import InputError

T = TypeVar("T")
Check = Callable[[Any, str], T]
"""Takes a value and its place in words; returns the value or raises InputError."""


def text(value: Any, where: str) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise _wrong(value, where, "text")
    return value


def flag(value: Any, where: str) -> bool:
    """Return a boolean."""
    if not isinstance(value, bool):
        raise _wrong(value, where, "true or false")
    return value


def number(value: Any, where: str) -> float:
    """Return a finite number."""
    try:
        if not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value):
            return float(value)
    except OverflowError:
        pass
    raise _wrong(value, where, "a finite number")


def whole(value: Any, where: str) -> int:
    """Return a whole number ≥ 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _wrong(value, where, "a whole number ≥ 0")
    return value


def optional(check: Check[T]) -> Check[T | None]:
    """Return the check that also takes None."""
    return lambda value, where: None if value is None else check(value, where)


def listed(check: Check[T]) -> Check[tuple[T, ...]]:
    """Return the check of a list whose values all pass."""

    def checked(value: Any, where: str) -> tuple[T, ...]:
        if not isinstance(value, (list, tuple)):
            raise _wrong(value, where, "a list")
        return tuple(check(one, f"{where}[{at}]") for at, one in enumerate(value))

    return checked


def mapped(check: Check[T]) -> Check[dict[str, T]]:
    """Return the check of a mapping from text to values that all pass."""

    def checked(value: Any, where: str) -> dict[str, T]:
        if not isinstance(value, Mapping):
            raise _wrong(value, where, "a mapping")
        return {
            text(key, f"a key of {where}"): check(one, f"a value of {where}") for key, one in value.items()
        }

    return checked


def anything(value: Any, _where: str) -> Any:
    """Return the value as it is: metadata is the caller's own."""
    return value


def _wrong(value: Any, where: str, wanted: str) -> InputError:
    # The type only: the value may be a document.
    return InputError(f"{where} is a {type(value).__name__}; it must be {wanted}.")
