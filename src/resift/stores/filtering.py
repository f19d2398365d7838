"""What `where` means, for every store: equality on metadata keys; a list means any of its values."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from resift.errors import InputError
from resift.types import to_json

Where = Mapping[str, Any]
Value = str | int | float | bool

_LONGEST_KEY = 80


def conditions(where: Where | None) -> dict[str, list[Value]]:
    """Return the filter as key -> allowed values; None and {} allow everything.

    Raises InputError for values that equality is not defined on here (None, dicts, nested lists, NaN).
    """
    if where is None:
        return {}
    if not isinstance(where, Mapping):
        raise InputError(f"where is a {type(where).__name__}; pass a dict of metadata keys and values.")
    return {_key(key): [_value(key, one) for one in _alternatives(value)] for key, value in where.items()}


def matches(metadata: Mapping[str, Any], where: Where | None) -> bool:
    """Say whether metadata passes the filter; the reference that engines' own filters must equal."""
    for key, allowed in conditions(where).items():
        if key not in metadata or not is_scalar(metadata[key]):
            return False
        if value_key(metadata[key]) not in {value_key(value) for value in allowed}:
            return False
    return True


def is_scalar(value: Any) -> bool:
    """Say whether a metadata value can be filtered on: a string, a finite number or a boolean."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, (str, int, bool))


def value_key(value: Value) -> str:
    """Return a short string that is equal exactly for equal values: 1 equals 1.0, but not True or "1"."""
    plain = int(value) if isinstance(value, float) and value.is_integer() else value
    text = to_json(plain)
    if len(text) <= _LONGEST_KEY:
        return text
    return "#" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _alternatives(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]


def _key(key: Any) -> str:
    if not isinstance(key, str) or not key:
        raise InputError(f"where has the key {key!r}; keys are names of metadata entries.")
    return key


def _value(key: str, value: Any) -> Value:
    if not is_scalar(value):
        raise InputError(
            f"where[{key!r}] holds a {type(value).__name__}; "
            "pass a string, a number, a boolean or a list of them."
        )
    scalar: Value = value
    return scalar
