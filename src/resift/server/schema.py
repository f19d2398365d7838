"""JSON Schema, as much of it as our routes use: one value checks a body and describes it in OpenAPI."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Sized
from typing import Any

from resift.server.failures import RequestFailed
from resift.types import JsonMapping, JsonObject, JsonValue

Schema = JsonMapping

NOT_BLANK = r"\S"
"""The one pattern that is used: something besides white space."""

TRUE, FALSE = ("true", "True", "1"), ("false", "False", "0")


def text(*, least: int = 0, most: int | None = None) -> Schema:
    """Return the schema of a string."""
    return {"type": "string", "minLength": least, **({} if most is None else {"maxLength": most})}


def question(*, most: int) -> Schema:
    """Return the schema of a string with something besides white space."""
    return {**text(least=1, most=most), "pattern": NOT_BLANK}


def whole(*, least: int | None = None, most: int | None = None) -> Schema:
    """Return the schema of a whole number; 3.0 is one, as in JSON Schema."""
    return {"type": "integer", **_bounds(least, most)}


def number(*, least: float | None = None, most: float | None = None) -> Schema:
    """Return the schema of a finite number."""
    return {"type": "number", **_bounds(least, most)}


def _bounds(least: float | None, most: float | None) -> Schema:
    bounds = {"minimum": least, "maximum": most}
    return {name: value for name, value in bounds.items() if value is not None}


def deadline_ms() -> Schema:
    """Return the schema of a deadline, at most eleven days: what the header takes too."""
    return whole(least=0, most=999_999_999)


def flag() -> Schema:
    """Return the schema of a boolean."""
    return {"type": "boolean"}


def lenient_flag() -> Schema:
    """Return the schema of a boolean that some clients send as a string."""
    return {"anyOf": [{"type": "boolean"}, {"type": "string", "enum": [*TRUE, *FALSE]}]}


def one_of(*values: str) -> Schema:
    """Return the schema of a choice."""
    return {"type": "string", "enum": list(values)}


def array(items: Schema, *, least: int = 0, most: int | None = None) -> Schema:
    """Return the schema of a list."""
    return {
        "type": "array",
        "items": items,
        "minItems": least,
        **({} if most is None else {"maxItems": most}),
    }


def either(*schemas: Schema) -> Schema:
    """Return the schema of a value that may be any of these."""
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


def mapping(values: Schema | None = None) -> Schema:
    """Return the schema of an object with any keys."""
    return {"type": "object", "additionalProperties": {} if values is None else values}


def record(
    properties: Mapping[str, Schema],
    *,
    required: Sequence[str] = (),
    closed: bool = True,
    nullable: bool = True,
) -> Schema:
    """Return the schema of an object; null stands for an absent field unless the field is required."""
    shown = {
        name: schema if name in required or not nullable else {"anyOf": [schema, {"type": "null"}]}
        for name, schema in properties.items()
    }
    return {
        "type": "object",
        "properties": shown,
        **({"required": list(required)} if required else {}),
        "additionalProperties": not closed,
    }


def checked(value: object, schema: Schema, *, name: str = "body") -> JsonValue:
    """Return the value in the form that the code works with, or raise RequestFailed saying what is wrong.

    Fields that are null are left out; booleans given as strings and whole floats become what they mean.
    """
    if "anyOf" in schema:
        return _any(value, schema["anyOf"], name)
    if "const" in schema and value != schema["const"]:
        raise _wrong(name, f"must be {schema['const']!r}")
    kind = schema.get("type")
    if kind is None:
        return value
    found = _CHECKS[kind](value, schema, name)
    if "enum" in schema and found not in schema["enum"]:
        raise _wrong(name, f"must be one of {', '.join(map(str, schema['enum']))}")
    if kind == "string" and found in (*TRUE, *FALSE) and schema.get("enum") == [*TRUE, *FALSE]:
        return found in TRUE
    return found


def _any(value: object, schemas: Sequence[Schema], name: str) -> JsonValue:
    failures = []
    for schema in schemas:
        try:
            return checked(value, schema, name=name)
        except RequestFailed as failed:
            failures.append(failed)
    # The schema that got furthest knows best: one of the right type complains of more than the type.
    kinds = [schema.get("type") for schema in schemas]
    same = [one for one, kind in zip(failures, kinds, strict=True) if kind == _kind_of(value)]
    raise (same or failures)[0]


def _text(value: object, schema: Schema, name: str) -> str:
    if not isinstance(value, str):
        raise _wrong(name, f"must be a string, not {_kind_of(value)}")
    _sized(value, schema, name, of="Length", words="characters")
    if schema.get("pattern") == NOT_BLANK and not value.strip():
        raise _wrong(name, "must not be blank", kind="empty")
    return value


def _whole(value: object, schema: Schema, name: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, f"must be a whole number, not {_kind_of(value)}")
    _bounded(value, schema, name)
    return value


def _number(value: object, schema: Schema, name: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _wrong(name, f"must be a number, not {_kind_of(value)}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise _wrong(name, "must be a finite number")
    _bounded(found, schema, name)
    return found


def _bounded(value: float, schema: Schema, name: str) -> None:
    if value < schema.get("minimum", -math.inf):
        raise _wrong(name, f"must be at least {schema['minimum']}")
    if value > schema.get("maximum", math.inf):
        raise _wrong(name, f"must be at most {schema['maximum']}")


def _sized(value: Sized, schema: Schema, name: str, *, of: str, words: str) -> None:
    if len(value) < schema.get(f"min{of}", 0):
        raise _wrong(name, "must not be empty", kind="empty")
    if len(value) > schema.get(f"max{of}", math.inf):
        raise _wrong(name, f"has {len(value)} {words}; at most {schema[f'max{of}']} are taken")


def _flag(value: object, schema: Schema, name: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, f"must be true or false, not {_kind_of(value)}")
    return value


def _nothing(value: object, schema: Schema, name: str) -> None:
    if value is not None:
        raise _wrong(name, "must be null")


def _array(value: object, schema: Schema, name: str) -> list[JsonValue]:
    if not isinstance(value, list):
        raise _wrong(name, f"must be a list, not {_kind_of(value)}")
    _sized(value, schema, name, of="Items", words="items")
    items = schema.get("items", {})
    if items.get("type") == "string" and all(type(item) is str for item in value):
        return _strings(value, items, name)
    return [checked(item, items, name=f"{name}[{at}]") for at, item in enumerate(value)]


def _strings(value: list[str], items: Schema, name: str) -> list[str]:
    """Check a list of strings without a call for each: the common case, and by far the longest lists."""
    shortest, longest = items.get("minLength", 0), items.get("maxLength", math.inf)
    if value and not (shortest <= min(map(len, value)) and max(map(len, value)) <= longest):
        for at, item in enumerate(value):
            _text(item, items, f"{name}[{at}]")
    return value


def _object(value: object, schema: Schema, name: str) -> JsonObject:
    if not isinstance(value, dict):
        raise _wrong(name, f"must be an object, not {_kind_of(value)}")
    for field in schema.get("required", ()):
        if field not in value:
            raise _wrong(_inside(name, field), "is missing")
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    found: JsonObject = {}
    for field, item in value.items():
        if field in properties:
            kept = checked(item, properties[field], name=_inside(name, field))
            if kept is not None:
                found[field] = kept
        elif more is False:
            raise _wrong(
                _inside(name, _shown(field)), "is not a field that is known here", kind="unknown_field"
            )
        elif more is not True:
            found[field] = checked(item, more, name=_inside(name, _shown(field)))
    return found


_CHECKS: JsonObject = {
    "string": _text,
    "integer": _whole,
    "number": _number,
    "boolean": _flag,
    "array": _array,
    "object": _object,
    "null": _nothing,
}


def _kind_of(value: object) -> str:
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _inside(name: str, field: str) -> str:
    return field if name == "body" else f"{name}.{field}"


def _shown(field: str) -> str:
    """Return a client's own key, fit for a message."""
    plain = "".join(char if char.isprintable() else "?" for char in field[:40])
    return plain or "''"


def _wrong(name: str, what: str, *, kind: Any = "invalid") -> RequestFailed:
    return RequestFailed(kind, f"{name} {what}")
