"""The types that a function declares, checked when it is called: a sentence, not an error from inside.

`@checked` reads a function's annotations and refuses an argument of another type with its name, what was
given and what is taken. It knows plain types, unions, literals, sequences, mappings, classes and runtime
protocols; what it does not know passes. Ranges and meanings are the function's own to check.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Any, ParamSpec, TypeVar

from resift.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=type)


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with its arguments checked against its annotations."""
    parameters = inspect.signature(function).parameters
    hints: dict[str, Any] = {}

    def check(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not hints:
            hints.update(_hints(function, parameters.values()))
        # Arguments that do not fit the signature at all: Python says so better than we could.
        for name, value in (*zip(parameters, args, strict=False), *kwargs.items()):
            if name in hints and not _fits(value, hints[name]):
                words = _words(hints[name], parameters[name].annotation if name in parameters else "")
                raise InputError(f"{_name(function)}: {name} is {_shown(value)}; pass {words}.")
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


def checked_class(cls: C) -> C:
    """Return the class with the arguments of its constructor checked."""
    cls.__init__ = checked(cls.__init__)  # type: ignore[misc]
    return cls


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


def _evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    return eval(annotation, names) if isinstance(annotation, str) else annotation  # noqa: S307 - our own source


def _fits(value: Any, hint: Any) -> bool:
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
        return isinstance(value, (int, hint)) and not isinstance(value, bool) and _is_usual(value)
    return _is_a(value, hint)


@functools.cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(hint), typing.get_args(hint)


def _is_usual(value: int | float) -> bool:
    """Whether a number can be a float at all."""
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


def _is_collection(value: Any, origin: type) -> bool:
    # A string is a sequence of strings to Python, and never what is meant.
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        return False
    if issubclass(origin, Sequence):
        return isinstance(value, Sequence)
    return isinstance(value, Iterable if origin is Iterable else Collection)


def _all_fit(values: Iterable[Any], inner: tuple[Any, ...]) -> bool:
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


def _name(function: Callable[..., Any]) -> str:
    return function.__qualname__.removesuffix(".__init__")


def _words(hint: Any, written: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:  # its name says nothing about the choices
        return " or ".join(map(repr, typing.get_args(hint)))
    return written if written and isinstance(written, str) else inspect.formatannotation(hint)


def _shown(value: Any) -> str:
    # Numbers and names of types only: a text may be a document or a key.
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 10**18):
        return repr(value)
    if isinstance(value, (list, tuple)) and value:
        return f"a {type(value).__name__} with a {type(value[0]).__name__}"
    return f"a {type(value).__name__}"
