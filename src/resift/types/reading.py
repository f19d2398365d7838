"""Plain data back to values: what each field is declared as decides what a file may bring in, and no more."""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import Enum
from typing import Any

from resift.arguments import fits_float
from resift.errors import InputError
from resift.types.json_values import JsonObject


def fields_of(kind: type, data: object, what: str) -> JsonObject:
    """Return the fields of a dataclass that the data has, each as it is declared; others are passed over."""
    if not isinstance(data, Mapping):
        raise _wrong(data, what, "a mapping")
    hints = _hints(kind)
    return {
        field.name: as_declared(hints[field.name], data[field.name], f"{field.name} of {what}")
        for field in fields(kind)
        if field.name in data
    }


def as_declared(hint: Any, value: Any, where: str) -> Any:
    """Return the value as the type that was declared for it; raises InputError where it is another.

    Whole numbers are counts here, so they start at 0.
    """
    # Exact types first: they are nearly all of a file.
    if hint in _SCALARS:
        return _scalar(hint, value, where)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):  # always `X | None`
        return None if value is None else as_declared(inner[0], value, where)
    if origin is not None:
        return (_mapping if issubclass(origin, Mapping) else _items)(inner, value, where)
    if hasattr(hint, "_fields"):  # a NamedTuple
        return hint(*map(as_declared, _hints(hint).values(), _listed(value, where), [where] * len(value)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _one_of(hint, value, where)
    # A value of ours reads itself; metadata, and what a subclass declares in its own way, is not ours.
    return hint.from_dict(value) if hasattr(hint, "from_dict") else value


def _mapping(inner: Sequence[Any], value: object, where: str) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, where, "a mapping")
    return {
        as_declared(inner[0], key, f"a key of {where}"): as_declared(inner[1], one, f"a value of {where}")
        for key, one in value.items()
    }


def _items(inner: Sequence[Any], value: object, where: str) -> tuple[Any, ...]:
    items = enumerate(_listed(value, where))
    return tuple(as_declared(inner[0], one, f"{where}[{at}]") for at, one in items)


_SCALARS: Mapping[object, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number ≥ 0",
    float: "a finite number",
}


def _scalar(hint: Any, value: Any, where: str) -> Any:
    # JSON's true is an int to Python, but no count.
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is float and is_number and abs(value) < math.inf and fits_float(value):
        return float(value)
    if hint is not float and isinstance(value, hint) and (hint is not int or (is_number and value >= 0)):
        return value
    raise _wrong(value, where, _SCALARS[hint])


def _listed(value: object, where: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(value, where, "a list")
    return value


def _one_of(kind: type[Enum], value: object, where: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(one.value) for one in kind)
        raise InputError(f"{where} is unknown; it must be one of {known}.") from None


@functools.cache
def _hints(kind: type) -> JsonObject:
    return typing.get_type_hints(kind)


def _wrong(value: object, where: str, wanted: str) -> InputError:
    # The type only: the value may be a document.
    return InputError(f"{where} is a {type(value).__name__}; it must be {wanted}.")
