"""Checks of the arguments of public functions; all return the value or raise InputError."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import os
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

from resift.errors import InputError, did_you_mean
from resift.validation.declared_types import as_float, find_problems, type_info, type_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_K = 10  # default number of hits in a ranking

_MAX_PATH_BYTES, _MAX_NAME_BYTES = 4096, 255


def check_k(k: object, *, name: str = "k", min: int = 0) -> int:
    """Return k, or raise InputError unless it is an integer of at least `min`."""
    if isinstance(k, bool) or not isinstance(k, int) or k < min:
        raise InputError(f"{name} is {show_value(k)}; use an integer ≥ {min}.")
    return k


def check_query(query: object, *, allow_empty: bool = False) -> str:
    """Return the query, or raise InputError unless it is a string that is not blank."""
    if not isinstance(query, str):
        raise InputError(f"The query is {type_name(query)}; pass a string.")
    if not allow_empty and not query.strip():
        raise InputError("The query is empty; pass the words or the question to search for.")
    return query


def check_number(value: object, name: str, *, gt: float | None = None, lt: float | None = None) -> float:
    """Return the value as a float, or raise InputError unless it is finite and between the exclusive bounds."""
    number = as_float(value)
    in_range = (gt is None or number > gt) and (lt is None or number < lt)
    if not math.isfinite(number) or not in_range:
        bounds = [f"above {gt:g}"] if gt is not None else []
        bounds += [f"below {lt:g}"] if lt is not None else []
        raise InputError(f"{name} is {show_value(value)}; pass a number{' ' if bounds else ''}{' and '.join(bounds)}.")
    return number


def check_seconds(value: object, name: str = "deadline_s") -> float | None:
    """Return the seconds, or raise InputError unless they are ≥ 0; None means no limit."""
    if value is None:
        return None
    number = as_float(value)
    if math.isnan(number) or number < 0:
        raise InputError(f"{name} is {show_value(value)}; pass a number of seconds ≥ 0, or None for no limit.")
    return number


def check_path(value: object, name: str) -> str:
    """Return a path as a string, or raise InputError if no file system accepts it."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path:
        raise InputError(f"{name} is {show_value(value)}; pass a path.")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        encoded = b"\0"
    parts = encoded.replace(b"\\", b"/").split(b"/")
    if b"\0" in encoded or len(encoded) >= _MAX_PATH_BYTES or max(map(len, parts)) > _MAX_NAME_BYTES:
        raise InputError(
            f"{name} is too long for a path or contains characters that are not allowed in a path; pass a path."
        )
    return path


def check_choice(value: object, choices: Collection[str], what: str) -> str:
    """Return the value, or raise InputError unless it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"Unknown {what} {show_value(value)}. {did_you_mean(str(value), choices)}")
    return value


def check_list(value: Iterable[T], name: str, of: str) -> list[T]:
    """Return the items as a list, or raise InputError for a string, a mapping or a single value."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InputError(f"{name} is {type_name(value)}; pass a list of {of}.")
    return list(value)


def check_mapping(value: object, name: str) -> Mapping[str, object] | None:
    """Return the value, or raise InputError unless it is a mapping or None."""
    if value is not None and not isinstance(value, Mapping):
        raise InputError(f"{name} is {type_name(value)}; pass a dict.")
    return value


def check_text(value: object, name: str) -> str:
    """Return the value, or raise InputError unless it is a string."""
    if not isinstance(value, str):
        raise InputError(f"{name} is {type_name(value)}; pass a string.")
    return value


def check_callable(value: T, name: str, expected: str) -> T:
    """Return the value, or raise InputError unless it is callable."""
    if not callable(value):
        raise InputError(f"{name} is {type_name(value)}; pass {expected}.")
    return value


def show_value(value: object, *, hide_text: bool = False) -> str:
    """Return a value as text for a message; a long string may be a document, so only its type is shown."""
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number with many digits"
    if value is None or isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str) and len(value) <= 40 and not hide_text:
        return repr(value)
    return type_name(value)


def check_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function so that it checks its arguments against its annotations.

    Use it for constructors and other infrequent calls. Annotations that cannot be checked at run time are ignored.
    """
    parameters = inspect.signature(function).parameters

    def check(args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        hints, rejects_unknown = _read_annotations(function)
        for name, value in (*zip(parameters, args, strict=False), *kwargs.items()):
            if rejects_unknown and name not in parameters and name not in hints:
                raise TypeError(f"{function.__qualname__}() got an unexpected keyword argument {name!r}")
            if name in hints and not _accepts(value, hints[name]):
                owner = function.__qualname__.removesuffix(".__init__")
                raise _wrong_type(owner, name, value, hints[name])

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def checked_coroutine(*args: P.args, **kwargs: P.kwargs) -> object:
            check(args, kwargs)
            return await function(*args, **kwargs)

        return typing.cast("Callable[P, T]", checked_coroutine)

    @functools.wraps(function)
    def checked_function(*args: P.args, **kwargs: P.kwargs) -> T:
        check(args, kwargs)
        return function(*args, **kwargs)

    return checked_function


def check_fields(value: DataclassInstance) -> None:
    """Raise InputError for the first field of a dataclass with the wrong type; call it in `__post_init__`."""
    for name, hint in _field_hints(type(value)).items():
        field = getattr(value, name)
        if not _accepts(field, hint):
            raise _wrong_type(type(value).__name__, name, field, hint)


@functools.cache
def _field_hints(kind: type) -> dict[str, object]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


@functools.cache
def _read_annotations(function: Callable[..., object]) -> tuple[dict[str, object], bool]:
    """Return the hints of a function's parameters, and whether all its keyword arguments are known."""
    hints: dict[str, object] = {}
    rejects_unknown = False
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
        elif typing.get_origin(hint) is typing.Unpack:  # **kwargs that are declared by a TypedDict
            hints |= typing.get_type_hints(typing.get_args(hint)[0])
            rejects_unknown = True
    return hints, rejects_unknown


def _accepts(value: object, hint: object) -> bool:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_accepts(value, member) for member in typing.get_args(hint))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return isinstance(value, hint)
    try:
        type_info(hint)
    except TypeError:  # the type cannot be checked at run time
        return True
    return all(problem.kind == "range" for problem in find_problems(value, hint))


def _wrong_type(owner: str, name: str, value: object, hint: object) -> InputError:
    # Text may be a document or a key, so only its type is shown.
    description = show_value(value, hide_text=True)
    if isinstance(value, (list, tuple)) and value:
        description += f" with {type_name(value[0])}"
    return InputError(f"{owner}: {name} is {description}; pass {_show_hint(hint)}.")


def _show_hint(hint: object) -> str:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_show_hint(member) for member in typing.get_args(hint))
    if typing.get_origin(hint) is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    if hint is type(None):
        return "None"
    # Show class names without their modules, because users import them from the package.
    return re.sub(r"(?<![\w.])[\w.]*\.(?=\w)", "", inspect.formatannotation(hint))
