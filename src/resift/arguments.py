"""What callers pass in, checked at every door: a sentence that says what to do, not an error from inside.

`@checked` reads a function's annotations and refuses an argument of another type. It knows plain types,
unions, literals, sequences, mappings, classes and runtime protocols; what it does not know passes. Ranges and
meanings are the `check_…` functions': each returns what it was given, or raises InputError with the value,
what is allowed and what to do.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from resift.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = ParamSpec("P")
T = TypeVar("T")

_LONGEST_PATH, _LONGEST_NAME = 4096, 255
"""Bytes of a path and of each name in it: more than this, no system of today takes."""

DEFAULT_K = 10
"""How many hits an answer has where nobody said."""


def check_k(k: object, *, name: str = "k", least: int = 0) -> int:
    """Return k, or raise InputError unless it is a whole number of at least `least`."""
    if isinstance(k, bool) or not isinstance(k, int) or k < least:
        raise InputError(f"{name} is {_shown(k)}; ask for a whole number of hits ≥ {least}.")
    return k


def check_query(query: object, *, empty: bool = False) -> str:
    """Return the query, or raise InputError unless it is a string with something in it (or `empty`)."""
    if not isinstance(query, str):
        raise InputError(f"The query is a {type(query).__name__}; pass a string.")
    if not empty and not query.strip():
        raise InputError("The query is empty; pass the words or the question to search for.")
    return query


def check_number(
    value: object, name: str, *, above: float | None = None, below: float | None = None
) -> float:
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


def check_seconds(value: object, name: str = "deadline_s") -> float | None:
    """Return seconds of 0 or more; None means no limit."""
    if value is None:
        return None
    number = _number(value)
    if math.isnan(number) or number < 0:
        raise InputError(f"{name} is {_shown(value)}; pass seconds ≥ 0, or None for no limit.")
    return number


def check_path(value: object, name: str) -> str:
    """Return a path as text; refuses what no file can be called."""
    if (
        not isinstance(value, (str, os.PathLike))
        or isinstance(os.fspath(value), bytes)
        or not os.fspath(value)
    ):
        raise InputError(f"{name} is {_shown(value)}; pass a path.")
    path = str(os.fspath(value))
    try:
        spelled = os.fsencode(path)
        names = spelled.replace(b"\\", b"/").split(b"/")
        whole = (
            b"\0" not in spelled and len(spelled) < _LONGEST_PATH and max(map(len, names)) <= _LONGEST_NAME
        )
    except UnicodeEncodeError:
        whole = False
    if not whole:
        raise InputError(
            f"{name} is too long for a path, or holds characters that none can have; pass a path."
        )
    return path


def check_choice(value: object, choices: Collection[str], what: str) -> str:
    """Return one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"Unknown {what} {_shown(value)}. {did_you_mean(str(value), choices)}")
    return value


def check_items(value: Iterable[T], name: str, of: str) -> list[T]:
    """Return the items as a list; one string or one mapping is a mistake, not a list of its parts."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InputError(f"{name} is one {type(value).__name__}; pass a list of {of}.")
    return list(value)


def check_mapping(value: object, name: str) -> Mapping[str, Any] | None:
    """Return a mapping, or None."""
    if value is not None and not isinstance(value, Mapping):
        raise InputError(f"{name} is a {type(value).__name__}; pass a dict.")
    return value


def check_text(value: object, name: str) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise InputError(f"{name} is a {type(value).__name__}; pass a string.")
    return value


def check_callable(value: T, name: str, what: str) -> T:
    """Return what can be called."""
    if not callable(value):
        raise InputError(f"{name} is a {type(value).__name__}; pass {what}.")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _shown(value: object) -> str:
    """Return a value for a message; what may be a document is named by its type alone."""
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number of many digits"
    if value is None or isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= 40):
        return repr(value)
    return f"a {type(value).__name__}"


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with its arguments checked against its annotations."""
    parameters = inspect.signature(function).parameters
    hints: dict[str, Any] = {}

    def check(args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        if not hints:
            hints.update(_hints(function, parameters.values()))
        # Arguments that do not fit the signature at all: Python says so better than we could.
        for name, value in (*zip(parameters, args, strict=False), *kwargs.items()):
            if name in hints and not _fits(value, hints[name]):
                words = _words(hints[name], parameters[name].annotation if name in parameters else "")
                raise InputError(f"{_name(function)}: {name} is {_kind_shown(value)}; pass {words}.")
            if _CLOSED in hints and name not in parameters and name not in hints:
                raise TypeError(f"{_name(function)}() got an unexpected keyword argument {name!r}")

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def asynchronous(*args: P.args, **kwargs: P.kwargs) -> Any:
            check(args, kwargs)
            return await function(*args, **kwargs)

        return typing.cast("Callable[P, T]", asynchronous)

    @functools.wraps(function)
    def synchronous(*args: P.args, **kwargs: P.kwargs) -> T:
        check(args, kwargs)
        return function(*args, **kwargs)

    return synchronous


def check_fields(value: DataclassInstance) -> None:
    """Raise InputError for the first field of a dataclass that is not as declared; for `__post_init__`."""
    kind = type(value)
    hints = _field_hints(kind)
    for field in dataclasses.fields(value):
        given = getattr(value, field.name)
        if not _fits(given, hints[field.name]):
            words = _words(hints[field.name], field.type)
            raise InputError(f"{kind.__name__}: {field.name} is {_kind_shown(given)}; pass {words}.")


@functools.cache
def _field_hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


_CLOSED = "**"
"""Stands among the hints of a function whose further options are all known: those of a TypedDict."""


def _hints(function: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> dict[str, Any]:
    found: dict[str, Any] = {"": None}  # never empty, so that it is made once
    for one in parameters:
        if one.kind is one.VAR_POSITIONAL or one.annotation is one.empty:
            continue
        try:
            # One by one: a name that is imported for type checkers only spoils its own hint, not the others.
            hint = _evaluated(one.annotation, getattr(function, "__globals__", {}))
        except Exception:  # noqa: S112 - what cannot be resolved here passes
            continue
        if one.kind is not one.VAR_KEYWORD:
            found[one.name] = hint
        elif typing.get_origin(hint) is typing.Unpack:
            found |= {_CLOSED: None, **typing.get_type_hints(typing.get_args(hint)[0])}
    return found


def _evaluated(annotation: object, names: dict[str, object]) -> Any:
    return eval(annotation, names) if isinstance(annotation, str) else annotation  # noqa: S307 - our own source


def _fits(value: object, hint: object) -> bool:
    if hint is None or hint is type(None):
        return value is None
    origin, inner = _parts(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is typing.Literal:
        return isinstance(value, (str, int, bool, type(None))) and value in inner
    if origin is not None:
        return _fits_generic(value, origin, inner)
    if hint in (int, float):
        # True is an int to Python, but nobody asks for True hits; and no number has 400 digits.
        return isinstance(value, (int, hint)) and not isinstance(value, bool) and fits_float(value)
    return _is_a(value, hint)


@functools.cache
def _parts(hint: object) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(hint), typing.get_args(hint)


def fits_float(value: int | float) -> bool:
    """Whether a number can be a float at all: none has 400 digits."""
    return not isinstance(value, int) or value.bit_length() < 1024


def _fits_generic(value: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    if origin is Callable or origin is type:
        return callable(value)
    if not isinstance(origin, type):
        return True
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(one, inner[1]) for key, one in value.items()
        )
    if issubclass(origin, (Sequence, Set)) or origin in (Collection, Iterable):
        return _is_collection(value, origin) and _all_fit(value, inner)
    return _is_a(value, origin)


def _is_collection(value: object, origin: type) -> bool:
    # A string is a sequence of strings to Python, and never what is meant.
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        return False
    if issubclass(origin, Sequence):
        return isinstance(value, Sequence)
    return isinstance(value, Iterable if origin is Iterable else Collection)


def _all_fit(values: Iterable[object], inner: tuple[object, ...]) -> bool:
    # Looking inside what is no collection would use it up.
    if not inner or not isinstance(values, Collection):
        return True
    if len(inner) > 1 and inner[-1] is not Ellipsis:
        return len(values) == len(inner) and all(map(_fits, values, inner))
    hint = inner[0]
    if hint in (int, float) or not isinstance(hint, type):
        return all(_fits(one, hint) for one in values)
    if hasattr(hint, "_is_protocol"):
        return all(_is_a(one, hint) for one in values)
    # By kind and not one by one: lists of hits are long, and every stage of a pipeline gets them.
    return all(issubclass(kind, hint) for kind in set(map(type, values)))


def _is_a(value: Any, hint: Any) -> bool:
    try:
        return isinstance(value, hint)
    except TypeError:  # Any, type variables, protocols that cannot be checked at run time
        return True


def _name(function: Callable[..., object]) -> str:
    return function.__qualname__.removesuffix(".__init__")


def _words(hint: object, written: object) -> str:
    origin, inner = _parts(hint)
    if origin is typing.Literal:  # its name says nothing about the choices
        return " or ".join(map(repr, inner))
    if any(_parts(one)[0] is typing.Literal for one in inner):
        return " or ".join(_words(one, getattr(one, "__name__", "")) for one in inner)
    return written if written and isinstance(written, str) else inspect.formatannotation(hint)


def _kind_shown(value: object) -> str:
    # Numbers and names of types only: a text may be a document or a key.
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 10**18):
        return repr(value)
    if isinstance(value, (list, tuple)) and value:
        return f"a {type(value).__name__} with a {type(value[0]).__name__}"
    return f"a {type(value).__name__}"
