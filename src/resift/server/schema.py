"""JSON Schema of requests and answers: one value describes a body in OpenAPI and checks it.

A schema is compiled once into a type that `resift.validation` reads bodies with.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import Meta

from resift.server.failures import Kind, RequestFailed
from resift.types import JsonMapping, JsonObject, JsonValue
from resift.validation import NOT_BLANK, Problem, find_problems

Schema = JsonMapping

TRUE, FALSE = ("true", "True", "1"), ("false", "False", "0")


class RequestSchema(dict[str, Any]):
    """A schema that reads bodies; its type is compiled at the first one."""

    @functools.cached_property
    def _type(self) -> Any:
        return _compile(self)

    @functools.cached_property
    def _flags(self) -> tuple[str, ...]:
        return _lenient_flags(self)

    def read(self, body: JsonValue) -> JsonObject:
        """Return the body without null fields, or raise RequestFailed for the first mistake.

        Booleans sent as strings and whole floats become what they mean.
        """
        try:
            request = msgspec.convert(body, self._type)
        except msgspec.ValidationError:
            request = self._read_whole_floats(body)
        found: JsonObject = msgspec.to_builtins(request)
        for name in self._flags:
            if isinstance(found.get(name), str):
                found[name] = found[name] in TRUE
        return found

    def _read_whole_floats(self, body: JsonValue) -> Any:
        """Read a body again with 3.0 as 3: JSON Schema calls both an integer."""
        whole_body = _whole_floats_as_ints(body)
        problem = next(find_problems(whole_body, self._type), None)
        if problem is not None:
            raise RequestFailed(_failure_kind(problem), _describe(problem))
        return msgspec.convert(whole_body, self._type)


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


def either(*schemas: Schema) -> RequestSchema:
    """Return the schema of a value that may be any of these."""
    return RequestSchema(schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)})


def mapping(values: Schema | None = None) -> Schema:
    """Return the schema of an object with any keys."""
    return {"type": "object", "additionalProperties": {} if values is None else values}


def record(
    properties: Mapping[str, Schema],
    *,
    required: Sequence[str] = (),
    closed: bool = True,
    nullable: bool = True,
) -> RequestSchema:
    """Return the schema of an object; null stands for an absent field unless the field is required."""
    shown = {
        name: schema if name in required or not nullable else {"anyOf": [schema, {"type": "null"}]}
        for name, schema in properties.items()
    }
    return RequestSchema(
        type="object",
        properties=shown,
        **({"required": list(required)} if required else {}),
        additionalProperties=not closed,
    )


def _failure_kind(problem: Problem) -> Kind:
    if problem.kind == "unknown":
        return "unknown_field"
    empty = problem.kind == "blank" or (problem.kind == "size" and not problem.value)
    return "empty" if empty else "invalid"


def _compile(schema: Schema) -> Any:
    """Return the type of a schema."""
    if "anyOf" in schema:
        return Union[tuple(map(_compile, schema["anyOf"]))]  # noqa: UP007 - made at run time
    if "const" in schema or "enum" in schema:
        return Literal[tuple(schema.get("enum", [schema.get("const")]))]
    return _COMPILERS[schema["type"]](schema) if "type" in schema else Any


def _compile_string(schema: Schema) -> Any:
    limits = {"min_length": schema.get("minLength") or None, "max_length": schema.get("maxLength")}
    return Annotated[str, Meta(**limits, pattern=schema.get("pattern"))]


def _compile_number(schema: Schema) -> Any:
    # Bounds at the edge of what a float can hold keep out infinity and NaN.
    least, most = schema.get("minimum", -sys.float_info.max), schema.get("maximum", sys.float_info.max)
    return Annotated[float, Meta(ge=least, le=most)]


def _compile_object(schema: Schema) -> Any:
    more = schema.get("additionalProperties", True)
    properties = schema.get("properties")
    if properties is None:
        values = Any if more in (True, {}) else _compile(more)
        return dict[str, values]  # type: ignore[valid-type]
    required = schema.get("required", ())
    fields: list[Any] = [(name, _compile(properties[name])) for name in properties if name in required]
    fields += [
        (name, _compile(each) | None, None) for name, each in properties.items() if name not in required
    ]
    return msgspec.defstruct(
        "Request", fields, forbid_unknown_fields=more is False, omit_defaults=True, kw_only=True
    )


_COMPILERS: Mapping[str, Callable[[Schema], Any]] = {
    "string": _compile_string,
    "integer": lambda schema: Annotated[int, Meta(ge=schema.get("minimum"), le=schema.get("maximum"))],
    "number": _compile_number,
    "boolean": lambda schema: bool,
    "null": lambda schema: None,
    "array": lambda schema: Annotated[
        list[_compile(schema.get("items", {}))],  # type: ignore[misc]
        Meta(min_length=schema.get("minItems") or None, max_length=schema.get("maxItems")),
    ],
    "object": _compile_object,
}


def _lenient_flags(schema: Schema) -> tuple[str, ...]:
    """Return the fields that take a boolean as a string."""
    properties = schema.get("properties", {})
    return tuple(name for name, each in properties.items() if _is_lenient(each))


def _is_lenient(schema: Schema) -> bool:
    return schema.get("enum") == [*TRUE, *FALSE] or any(map(_is_lenient, schema.get("anyOf", ())))


def _whole_floats_as_ints(value: JsonValue) -> JsonValue:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_whole_floats_as_ints(item) for item in value]
    if isinstance(value, dict):
        return {key: _whole_floats_as_ints(item) for key, item in value.items()}
    return value


_EXPECTED = {
    "StrType": "a string",
    "IntType": "a whole number",
    "FloatType": "a number",
    "BoolType": "true or false",
    "ListType": "a list",
    "NoneType": "null",
    "LiteralType": "a string",
}


def _describe(problem: Problem) -> str:
    """Return one sentence about a mistake, without the value: it may be a document."""
    expected: Any = problem.expected
    name = Problem(tuple(map(_printable, problem.path)), problem.kind, None, expected).name() or "body"
    if problem.kind == "type":
        first = expected.types[0] if hasattr(expected, "types") else expected
        wanted = _EXPECTED.get(type(first).__name__, "an object")
        return f"{name} must be {wanted}, not {_json_type(problem.value)}"
    if problem.kind == "range":
        return f"{name} must be {_range(problem.value, expected)}"
    if problem.kind == "size":
        size = len(problem.value)  # type: ignore[arg-type]
        if size < (expected.min_length or 0):
            return f"{name} must not be empty"
        unit = "characters" if isinstance(problem.value, str) else "items"
        return f"{name} has {size} {unit}; at most {expected.max_length} are taken"
    sentences = {
        "blank": "must not be blank",
        "choice": f"must be one of {', '.join(problem.allowed)}",
        "missing": "is missing",
        "unknown": "is not a field that is known here",
    }
    return f"{name} {sentences[problem.kind]}"


def _range(value: Any, expected: Any) -> str:
    if expected.ge is not None and value < expected.ge and expected.ge > -sys.float_info.max:
        return f"at least {expected.ge:g}"
    if expected.le is not None and value > expected.le and expected.le < sys.float_info.max:
        return f"at most {expected.le:g}"
    return "a finite number"


def _json_type(value: object) -> str:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _printable(part: str | int) -> str | int:
    """Return a client's own key, fit for a message."""
    if isinstance(part, int):
        return part
    return "".join(char if char.isprintable() else "?" for char in part[:40]) or "''"
