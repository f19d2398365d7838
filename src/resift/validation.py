"""Checks of what comes from outside: arguments, options, files and request bodies.

Public entry points check their arguments with the plain `check_…` functions. Data (a pipeline file, an HTTP
body, a file on disk) is declared as types and read with `convert`. Code behind these two trusts its callers.

msgspec reads the data. It stops at the first mistake and describes it for machines, so `find_problems`
walks the same declaration and names every mistake, with its place, for people.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import os
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from resift.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from msgspec.inspect import Type

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_K = 10
"""How many hits an answer has by default."""

_MAX_PATH_BYTES, _MAX_NAME_BYTES = 4096, 255


def check_k(k: object, *, name: str = "k", min: int = 0) -> int:
    """Return k, or raise InputError unless it is a whole number of at least `min`."""
    if isinstance(k, bool) or not isinstance(k, int) or k < min:
        raise InputError(f"{name} is {show_safely(k)}; ask for a whole number of hits ≥ {min}.")
    return k


def check_query(query: object, *, allow_empty: bool = False) -> str:
    """Return the query, or raise InputError unless it is a string that is not blank."""
    if not isinstance(query, str):
        raise InputError(f"The query is a {type(query).__name__}; pass a string.")
    if not allow_empty and not query.strip():
        raise InputError("The query is empty; pass the words or the question to search for.")
    return query


def check_number(value: object, name: str, *, gt: float | None = None, lt: float | None = None) -> float:
    """Return a finite number between the bounds, which are exclusive."""
    number = _as_float(value)
    in_range = (gt is None or number > gt) and (lt is None or number < lt)
    if not math.isfinite(number) or not in_range:
        bounds = [f"above {gt:g}"] if gt is not None else []
        bounds += [f"below {lt:g}"] if lt is not None else []
        raise InputError(
            f"{name} is {show_safely(value)}; pass a number{' ' if bounds else ''}{' and '.join(bounds)}."
        )
    return number


def check_seconds(value: object, name: str = "deadline_s") -> float | None:
    """Return seconds ≥ 0; None means no limit."""
    if value is None:
        return None
    number = _as_float(value)
    if math.isnan(number) or number < 0:
        raise InputError(f"{name} is {show_safely(value)}; pass seconds ≥ 0, or None for no limit.")
    return number


def check_path(value: object, name: str) -> str:
    """Return a path as text; refuse one that no file system accepts."""
    if (
        not isinstance(value, (str, os.PathLike))
        or not isinstance(os.fspath(value), str)
        or not os.fspath(value)
    ):
        raise InputError(f"{name} is {show_safely(value)}; pass a path.")
    path = str(os.fspath(value))
    try:
        encoded = os.fsencode(path)
        parts = encoded.replace(b"\\", b"/").split(b"/")
        valid = (
            b"\0" not in encoded
            and len(encoded) < _MAX_PATH_BYTES
            and max(map(len, parts)) <= _MAX_NAME_BYTES
        )
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise InputError(
            f"{name} is too long for a path or has characters that no path can have; pass a path."
        )
    return path


def check_choice(value: object, choices: Collection[str], what: str) -> str:
    """Return the value if it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"Unknown {what} {show_safely(value)}. {did_you_mean(str(value), choices)}")
    return value


def check_list(value: Iterable[T], name: str, of: str) -> list[T]:
    """Return the items as a list; a single string or mapping is refused."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InputError(f"{name} is one {type(value).__name__}; pass a list of {of}.")
    return list(value)


def check_mapping(value: object, name: str) -> Mapping[str, Any] | None:
    """Return a mapping or None."""
    if value is not None and not isinstance(value, Mapping):
        raise InputError(f"{name} is a {type(value).__name__}; pass a dict.")
    return value


def check_text(value: object, name: str) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise InputError(f"{name} is a {type(value).__name__}; pass a string.")
    return value


def check_flag(value: object, name: str) -> bool:
    """Return a boolean; 1 and "yes" are refused."""
    if not isinstance(value, bool):
        raise InputError(f"{name} is {show_safely(value)}; pass True or False.")
    return value


def check_callable(value: T, name: str, what: str) -> T:
    """Return a value that can be called."""
    if not callable(value):
        raise InputError(f"{name} is a {type(value).__name__}; pass {what}.")
    return value


def check_instance(value: T, kind: type[T] | tuple[type, ...], name: str, what: str) -> T:
    """Return a value of the given type."""
    if not isinstance(value, kind):
        raise InputError(f"{name} is {show_safely(value)}; pass {what}.")
    return value


def show_safely(value: object) -> str:
    """Return a value for a message; a long string may be a document, so only its type is named."""
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number of many digits"
    if value is None or isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= 40):
        return repr(value)
    return f"a {type(value).__name__}"


def _as_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def check_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """Return a public function that checks the types of its arguments against its annotations.

    For constructors and other calls that happen rarely. Annotations that cannot be checked at run time pass.
    """
    parameters = inspect.signature(function).parameters
    hints: dict[str, Any] = {}
    # Options passed on as **kwargs of a TypedDict are known by name as well.
    closed = False

    def check(args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        nonlocal closed
        if not hints:
            closed = _read_annotations(function, hints)
        for name, value in (*zip(parameters, args, strict=False), *kwargs.items()):
            if closed and name not in parameters and name not in hints:
                raise TypeError(f"{function.__qualname__}() got an unexpected keyword argument {name!r}")
            if name in hints and not _accepts(value, hints[name]):
                owner = function.__qualname__.removesuffix(".__init__")
                raise InputError(f"{owner}: {name} is {_show_type(value)}; pass {_show_hint(hints[name])}.")

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def checked_coroutine(*args: P.args, **kwargs: P.kwargs) -> Any:
            check(args, kwargs)
            return await function(*args, **kwargs)

        return typing.cast("Callable[P, T]", checked_coroutine)

    @functools.wraps(function)
    def checked_function(*args: P.args, **kwargs: P.kwargs) -> T:
        check(args, kwargs)
        return function(*args, **kwargs)

    return checked_function


def check_fields(value: DataclassInstance) -> None:
    """Raise InputError for the first field of a dataclass with the wrong type; for `__post_init__`."""
    for name, hint in _field_hints(type(value)).items():
        field = getattr(value, name)
        if not _accepts(field, hint):
            raise InputError(
                f"{type(value).__name__}: {name} is {_show_type(field)}; pass {_show_hint(hint)}."
            )


@functools.cache
def _field_hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _read_annotations(function: Callable[..., Any], hints: dict[str, Any]) -> bool:
    """Fill in the hints of a function's parameters; return whether its further options are all known."""
    closed = False
    for parameter in inspect.signature(function).parameters.values():
        annotation = parameter.annotation
        if parameter.kind is parameter.VAR_POSITIONAL or annotation is parameter.empty:
            continue
        try:
            names = getattr(function, "__globals__", {})
            hint = eval(annotation, names) if isinstance(annotation, str) else annotation  # noqa: S307 - our source
        except NameError:  # imported for type checkers only
            continue
        if parameter.kind is not parameter.VAR_KEYWORD:
            hints[parameter.name] = hint
        elif typing.get_origin(hint) is typing.Unpack:
            hints |= typing.get_type_hints(typing.get_args(hint)[0])
            closed = True
    hints.setdefault("", Any)  # never empty, so that it is filled once
    return closed


def _accepts(value: object, hint: Any) -> bool:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_accepts(value, member) for member in typing.get_args(hint))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return isinstance(value, hint)
    try:
        expected = type_info(hint)
    except TypeError:  # not a type that can be checked at run time
        return True
    return all(problem.kind == "range" for problem in _problems(value, expected, ()))


def _show_type(value: object) -> str:
    # A text may be a document or a key, so only its type is shown.
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 10**18):
        return repr(value)
    if isinstance(value, (list, tuple)) and value:
        return f"a {type(value).__name__} with a {type(value[0]).__name__}"
    return f"a {type(value).__name__}"


def _show_hint(hint: Any) -> str:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_show_hint(member) for member in typing.get_args(hint))
    if typing.get_origin(hint) is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    if hint is type(None):
        return "None"
    # Class names without their modules: users import them from the package.
    return re.sub(r"(?<![\w.])[\w.]*\.(?=\w)", "", inspect.formatannotation(hint))


ProblemKind = Literal["type", "range", "size", "blank", "choice", "missing", "unknown"]

NOT_BLANK = r"\S"
"""The pattern of a string with something other than white space: the only one that declared types use."""
_NOT_BLANK = re.compile(NOT_BLANK)


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in data: where it is, what was found, and what is allowed there.

    `path` has the keys and positions from the root. `expected` is the declared type at that place; for an
    unknown key it is the type of the mapping, and `allowed` are the keys it has.
    """

    path: tuple[str | int, ...]
    kind: ProblemKind
    value: object
    expected: Type
    allowed: tuple[str, ...] = ()

    def name(self, root: str = "") -> str:
        """Return the place as `root.key[0]`."""
        name = root
        for part in self.path:
            name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
        return name


def convert(data: object, declared: type[T], *, name: str) -> T:
    """Return the data as the declared type; raise InputError for the first mistake.

    The message names the place and the type of what was found, never the value: it may be a document.
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
    where = f"{problem.name()} of {root}" if problem.path else root
    if problem.kind == "missing":
        return f"{where} is missing; it must be {describe_type(problem.expected)}."
    if problem.kind == "unknown":
        return f"{where} is unknown. {did_you_mean(str(problem.path[-1]), problem.allowed)}"
    if problem.kind == "choice":
        return f"{where} is unknown; it must be one of {', '.join(problem.allowed)}."
    return f"{where} is a {type(problem.value).__name__}; it must be {describe_type(problem.expected)}."


def find_problems(data: object, declared: Any) -> Iterator[Problem]:
    """Yield every mistake in the data, in the order of the declaration."""
    yield from _problems(data, type_info(declared), ())


@functools.cache
def type_info(declared: Any) -> Type:
    """Return msgspec's description of a declared type."""
    from msgspec.inspect import type_info as inspect_type

    return inspect_type(declared)


def is_finite_number(value: object) -> bool:
    """Whether a value is an int or float that a float can hold."""
    return math.isfinite(_as_float(value))


def _problems(value: Any, expected: Any, path: tuple[str | int, ...]) -> Iterator[Problem]:
    kind = type(expected).__name__
    if kind == "UnionType":
        yield from _union_problems(value, expected, path)
    elif kind in _SCALAR_CHECKS:
        found = _SCALAR_CHECKS[kind](value, expected)
        if found:
            yield Problem(path, found, value, expected)
    elif kind in ("LiteralType", "EnumType"):
        allowed = _choices(expected)
        if value not in allowed:
            kinds = {type(choice) for choice in allowed}
            wrong_type = not isinstance(value, tuple(kinds)) or isinstance(value, bool) not in {
                issubclass(each, bool) for each in kinds
            }
            yield Problem(path, "type" if wrong_type else "choice", value, expected, tuple(map(str, allowed)))
    elif kind in ("DictType", "TupleType") or hasattr(expected, "item_type"):
        yield from _container_problems(value, expected, path)
    elif kind == "CustomType":
        if not _is_instance(value, expected.cls):
            yield Problem(path, "type", value, expected)
    elif hasattr(expected, "fields"):
        yield from _record_problems(value, expected, path)


def _container_problems(value: Any, expected: Any, path: tuple[str | int, ...]) -> Iterator[Problem]:
    kind = type(expected).__name__
    if kind == "DictType":
        valid = isinstance(value, Mapping)
    elif kind == "TupleType":
        valid = isinstance(value, (list, tuple)) and len(value) == len(expected.item_types)
    else:
        # A string is a collection of strings to Python, and never what is meant.
        valid = isinstance(value, Collection) and not isinstance(value, (str, bytes, bytearray, Mapping))
    if not valid:
        yield Problem(path, "type", value, expected)
    elif kind == "DictType":
        for key, item in value.items():
            yield from _problems(key, expected.key_type, (*path, str(key)))
            yield from _problems(item, expected.value_type, (*path, str(key)))
    else:
        if kind != "TupleType" and not _has_size(len(value), expected):
            yield Problem(path, "size", value, expected)
        item_types = expected.item_types if kind == "TupleType" else repeat(expected.item_type)
        for i, (item, item_type) in enumerate(zip(value, item_types, strict=False)):
            yield from _problems(item, item_type, (*path, i))


def _union_problems(value: Any, expected: Any, path: tuple[str | int, ...]) -> Iterator[Problem]:
    attempts = [list(_problems(value, each, path)) for each in expected.types]
    if not all(attempts):
        return
    # The member of the value's own type knows best what is wrong with it.
    same_type = [
        found
        for found in attempts
        if any(problem.kind != "type" or problem.path != path for problem in found)
    ]
    if same_type:
        yield from same_type[0]
    else:
        yield Problem(path, "type", value, expected)


def _record_problems(value: Any, expected: Any, path: tuple[str | int, ...]) -> Iterator[Problem]:
    if isinstance(value, getattr(expected, "cls", ())):
        return  # an argument that has this type already
    if not isinstance(value, Mapping):
        yield Problem(path, "type", value, expected)
        return
    names = {each.encode_name: each for each in expected.fields}
    for name, each in names.items():
        if each.required and name not in value:
            yield Problem((*path, name), "missing", None, each.type)
    for name, item in value.items():
        if name in names:
            yield from _problems(item, names[name].type, (*path, name))
        elif getattr(expected, "forbid_unknown_fields", False):
            yield Problem((*path, str(name)), "unknown", item, expected, tuple(names))


def _is_instance(value: object, cls: Any) -> bool:
    if cls is Callable:
        return callable(value)
    # A string is iterable too, but never what is meant.
    if cls is Iterable and isinstance(value, (str, bytes, bytearray)):
        return False
    try:
        return isinstance(value, cls)
    except TypeError:  # a protocol that cannot be checked at run time
        return True


def _check_str(value: object, expected: Any) -> ProblemKind | None:
    if not isinstance(value, str):
        return "type"
    if not _has_size(len(value), expected):
        return "size"
    if expected.pattern is not None and not _NOT_BLANK.search(value):
        return "blank"
    return None


def _check_int(value: object, expected: Any) -> ProblemKind | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return "type"
    return None if _in_range(value, expected) else "range"


def _check_float(value: object, expected: Any) -> ProblemKind | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "type"
    return None if is_finite_number(value) and _in_range(value, expected) else "range"


def _check_bool(value: object, expected: Any) -> ProblemKind | None:
    return None if isinstance(value, bool) else "type"


def _check_none(value: object, expected: Any) -> ProblemKind | None:
    return None if value is None else "type"


_SCALAR_CHECKS = {
    "StrType": _check_str,
    "IntType": _check_int,
    "FloatType": _check_float,
    "BoolType": _check_bool,
    "NoneType": _check_none,
}


def _in_range(value: float, expected: Any) -> bool:
    return (
        (expected.gt is None or value > expected.gt)
        and (expected.ge is None or value >= expected.ge)
        and (expected.lt is None or value < expected.lt)
        and (expected.le is None or value <= expected.le)
    )


def _has_size(size: int, expected: Any) -> bool:
    return (expected.min_length or 0) <= size and (expected.max_length is None or size <= expected.max_length)


def _choices(expected: Any) -> tuple[Any, ...]:
    if hasattr(expected, "values"):
        return tuple(expected.values)
    return tuple(member.value for member in expected.cls)


_TYPE_NAMES = {
    "StrType": "text",
    "IntType": "a whole number",
    "FloatType": "a finite number",
    "BoolType": "true or false",
    "NoneType": "null",
    "DictType": "a mapping",
    "AnyType": "a value",
}
_BOUNDS = (("> ", "gt"), ("≥ ", "ge"), ("< ", "lt"), ("≤ ", "le"))


def describe_type(expected: Any) -> str:
    """Return a declared type in words, with its bounds: "a whole number ≥ 1"."""
    kind = type(expected).__name__
    if kind == "UnionType":
        members = [describe_type(each) for each in expected.types if type(each).__name__ != "NoneType"]
        return " or ".join(dict.fromkeys(members))
    if kind in ("LiteralType", "EnumType"):
        return f"one of {', '.join(map(str, _choices(expected)))}"
    if hasattr(expected, "item_type"):
        return "a list"
    words = _TYPE_NAMES.get(kind, "a mapping")
    # Bounds at the edge of what a float can hold only say that the number is finite.
    bounds = [
        f"{sign}{bound:g}"
        for sign, name in _BOUNDS
        if (bound := getattr(expected, name, None)) is not None and abs(bound) < 1e300
    ]
    return f"{words} {', '.join(bounds)}" if bounds else words
