"""Convert data to declared types: files on disk, HTTP bodies and option values.

msgspec converts the data. It stops at the first mistake, and its message is meant for machines. `find_problems`
walks the same declaration and reports every mistake and its location for people.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from resift.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from msgspec import inspect as kinds

    RecordType = kinds.StructType | kinds.DataclassType | kinds.TypedDictType | kinds.NamedTupleType

T = TypeVar("T")

Path = tuple[str | int, ...]
ProblemKind = Literal["type", "range", "size", "blank", "choice", "missing", "unknown"]

NOT_BLANK = r"\S"  # pattern for a string with at least one visible character; declared types use no other pattern
_NOT_BLANK = re.compile(NOT_BLANK)

_TYPE_NAMES = {
    "StrType": "text",
    "IntType": "an integer",
    "FloatType": "a finite number",
    "BoolType": "true or false",
    "NoneType": "null",
    "DictType": "a mapping",
    "AnyType": "a value",
}
_BOUNDS = (("> ", "gt"), ("≥ ", "ge"), ("< ", "lt"), ("≤ ", "le"))


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in data: its location, its value and the declared type.

    `path` contains the keys and positions from the root. For an unknown key, `expected` is the type of the
    mapping and `allowed` contains its keys.
    """

    path: Path
    kind: ProblemKind
    value: object
    expected: kinds.Type
    allowed: tuple[str, ...] = ()

    def name(self, root: str = "") -> str:
        """Return the location as `root.key[0]`."""
        name = root
        for part in self.path:
            name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
        return name


def convert(data: object, declared: type[T], *, name: str) -> T:
    """Return the data as the declared type; raise InputError for the first mistake.

    The message names the location and the type of the value, never the value itself, which may be a document.
    """
    import msgspec

    try:
        return msgspec.convert(data, declared)
    except msgspec.ValidationError:
        problem = next(find_problems(data, declared), None)
        if problem is None:
            raise
    raise InputError(describe_problem(problem, name)) from None


def describe_problem(problem: Problem, root: str) -> str:
    """Return one sentence about a mistake in a file or a value."""
    location = f"{problem.name()} of {root}" if problem.path else root
    if problem.kind == "missing":
        return f"{location} is missing; it must be {describe_type(problem.expected)}."
    if problem.kind == "unknown":
        return f"{location} is unknown. {did_you_mean(str(problem.path[-1]), problem.allowed)}"
    if problem.kind == "choice":
        return f"{location} is unknown; it must be one of {', '.join(problem.allowed)}."
    return f"{location} is {type_name(problem.value)}; it must be {describe_type(problem.expected)}."


def type_name(value: object) -> str:
    """Return the type of a value with its article: "a str", "an int"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def describe_type(expected: kinds.Type) -> str:
    """Return a declared type in words, with its bounds: "an integer ≥ 1"."""
    from msgspec import inspect

    if isinstance(expected, inspect.UnionType):
        members = [describe_type(member) for member in expected.types if not isinstance(member, inspect.NoneType)]
        return " or ".join(dict.fromkeys(members))
    if isinstance(expected, (inspect.LiteralType, inspect.EnumType)):
        return f"one of {', '.join(map(str, _choices(expected)))}"
    if isinstance(expected, inspect.CollectionType):
        return "a list"
    words = _TYPE_NAMES.get(type(expected).__name__, "a mapping")
    # Bounds at the limits of a float only mean that the number is finite.
    bounds = [
        f"{sign}{bound:g}"
        for sign, name in _BOUNDS
        if (bound := getattr(expected, name, None)) is not None and abs(bound) < 1e300
    ]
    return f"{words} {', '.join(bounds)}" if bounds else words


def find_problems(data: object, declared: object) -> Iterator[Problem]:
    """Yield every mistake in the data, in the order of the declaration."""
    yield from _find(data, type_info(declared), ())


@functools.cache
def type_info(declared: object) -> kinds.Type:
    """Return msgspec's description of a declared type."""
    from msgspec.inspect import type_info as inspect_type

    return inspect_type(declared)


def is_finite_number(value: object) -> bool:
    """Whether a value is an int or float that a float can represent."""
    return math.isfinite(as_float(value))


def as_float(value: object) -> float:
    """Return a number as a float; NaN for everything else, including booleans."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _find(value: object, expected: kinds.Type, path: Path) -> Iterator[Problem]:
    from msgspec import inspect

    if isinstance(expected, inspect.UnionType):
        yield from _find_in_union(value, expected, path)
    elif isinstance(expected, (inspect.LiteralType, inspect.EnumType)):
        choices = _choices(expected)
        if value not in choices:
            same_type = any(
                isinstance(value, type(choice)) and isinstance(value, bool) == isinstance(choice, bool)
                for choice in choices
            )
            yield Problem(path, "choice" if same_type else "type", value, expected, tuple(map(str, choices)))
    elif isinstance(expected, inspect.DictType):
        if not isinstance(value, Mapping):
            yield Problem(path, "type", value, expected)
            return
        for key, item in value.items():
            yield from _find(key, expected.key_type, (*path, str(key)))
            yield from _find(item, expected.value_type, (*path, str(key)))
    elif isinstance(expected, inspect.TupleType):
        if isinstance(value, (list, tuple)) and len(value) == len(expected.item_types):
            for i, (item, item_type) in enumerate(zip(value, expected.item_types, strict=True)):
                yield from _find(item, item_type, (*path, i))
        else:
            yield Problem(path, "type", value, expected)
    elif isinstance(expected, inspect.CollectionType):
        yield from _find_in_collection(value, expected, path)
    elif isinstance(expected, inspect.CustomType):
        if not _is_instance(value, expected.cls):
            yield Problem(path, "type", value, expected)
    elif isinstance(
        expected, (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)
    ):
        yield from _find_in_record(value, expected, path)
    elif (kind := _scalar_problem(value, expected)) is not None:
        yield Problem(path, kind, value, expected)


def _scalar_problem(value: object, expected: kinds.Type) -> ProblemKind | None:
    from msgspec import inspect

    problem: ProblemKind | None = None
    if isinstance(expected, inspect.StrType):
        if not isinstance(value, str):
            problem = "type"
        elif not _has_size(len(value), expected):
            problem = "size"
        elif expected.pattern is not None and not _NOT_BLANK.search(value):
            problem = "blank"
    elif isinstance(expected, (inspect.IntType, inspect.FloatType)):
        allowed = int if isinstance(expected, inspect.IntType) else (int, float)
        if isinstance(value, bool) or not isinstance(value, allowed):
            problem = "type"
        elif (
            not (isinstance(value, int) or math.isfinite(value))
            or (expected.gt is not None and value <= expected.gt)
            or (expected.ge is not None and value < expected.ge)
            or (expected.lt is not None and value >= expected.lt)
            or (expected.le is not None and value > expected.le)
        ):
            problem = "range"
    elif isinstance(expected, inspect.BoolType):
        problem = None if isinstance(value, bool) else "type"
    elif isinstance(expected, inspect.NoneType):
        problem = None if value is None else "type"
    return problem


def _find_in_union(value: object, expected: kinds.UnionType, path: Path) -> Iterator[Problem]:
    attempts = [list(_find(value, member, path)) for member in expected.types]
    if not all(attempts):
        return
    # The member with the type of the value gives the most precise message.
    same_type = [
        problems for problems in attempts if any(problem.kind != "type" or problem.path != path for problem in problems)
    ]
    yield from same_type[0] if same_type else [Problem(path, "type", value, expected)]


def _find_in_collection(value: object, expected: kinds.CollectionType, path: Path) -> Iterator[Problem]:
    # In Python, a string is a collection of strings, but it is never meant as one here.
    if not isinstance(value, Collection) or isinstance(value, (str, bytes, bytearray, Mapping)):
        yield Problem(path, "type", value, expected)
        return
    if not _has_size(len(value), expected):
        yield Problem(path, "size", value, expected)
    for i, item in enumerate(value):
        yield from _find(item, expected.item_type, (*path, i))


def _find_in_record(value: object, expected: RecordType, path: Path) -> Iterator[Problem]:
    """Yield the mistakes in a struct, dataclass or TypedDict; an instance of the class passes."""
    if isinstance(value, getattr(expected, "cls", ())):
        return
    if not isinstance(value, Mapping):
        yield Problem(path, "type", value, expected)
        return
    fields = {field.encode_name: field for field in expected.fields}
    for name, field in fields.items():
        if field.required and name not in value:
            yield Problem((*path, name), "missing", None, field.type)
    for name, item in value.items():
        if name in fields:
            yield from _find(item, fields[name].type, (*path, name))
        elif getattr(expected, "forbid_unknown_fields", False):
            yield Problem((*path, str(name)), "unknown", item, expected, tuple(fields))


def _is_instance(value: object, cls: object) -> bool:
    if cls is Callable:
        return callable(value)
    if cls is Iterable and isinstance(value, (str, bytes, bytearray)):
        return False
    try:
        return isinstance(value, cls)  # type: ignore[arg-type]  # raises TypeError for other values
    except TypeError:  # a protocol that cannot be checked at run time
        return True


def _has_size(size: int, expected: kinds.StrType | kinds.CollectionType) -> bool:
    return (expected.min_length or 0) <= size and (expected.max_length is None or size <= expected.max_length)


def _choices(expected: kinds.LiteralType | kinds.EnumType) -> tuple[object, ...]:
    from msgspec.inspect import EnumType

    if isinstance(expected, EnumType):
        return tuple(member.value for member in expected.cls)
    return tuple(expected.values)
