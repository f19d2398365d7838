"""Options: what can be set on a plugin or a stage, declared once, as the fields of a dataclass beside it.

    @dataclass(frozen=True, kw_only=True)
    class TurnsOptions(Options):
        start: int = option("Which list begins.", default=0, least=0)

    class TakeTurns:
        Options = TurnsOptions

From the field's type, bounds and text follow the keys of a pipeline file, their checks with line numbers,
`resift config check`, the reference page and every message about them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from resift.errors import InputError, did_you_mean

Takes = Literal[
    "text", "variable", "path", "key file", "address", "int", "number", "flag", "texts", "numbers by name",
    "mapping", "section", "sections",
]  # fmt: skip
"""What an option takes. It follows from the field's type, but for four kinds of text: a `path`, an `address`
(both may use ${VARIABLES}), a `key file`, and a `variable`: the name of one, for secrets."""

TAKES: Mapping[Takes, str] = {
    "text": "text",
    "variable": "the name of an environment variable, such as VOYAGE_API_KEY",
    "path": "a path",
    "key file": "a path",
    "address": "an address",
    "int": "a whole number",
    "number": "a number",
    "flag": "true or false",
    "texts": "a list of texts",
    "numbers by name": "a mapping of names to numbers",
    "mapping": "a mapping",
    "section": "a mapping",
    "sections": "a list of mappings",
}
"""What an option takes, in words."""

_SCALARS: Mapping[object, Takes] = {str: "text", int: "int", float: "number", bool: "flag"}
_METADATA = "resift.option"

Choices = Sequence[str] | Callable[[], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: what it takes, between which bounds, and what it does."""

    name: str
    takes: Takes
    help: str
    required: bool = False
    default: Any = None
    least: float | None = None
    most: float | None = None
    above: float | None = None
    choices: Choices = ()
    must_exist: bool = False
    variables: tuple[str, ...] = ()
    """Environment variables made for this place; any other must be allowed outside the file."""
    plugins: str = ""
    """The entry-point group that the value is a name of; that plugin's own options stand beside this one."""
    nested: type | None = None
    """The dataclass of a nested section."""
    starts_from: object = None
    """An instance that the nested section takes its defaults from."""
    optional: bool = False
    """Whether None is a value of it."""

    def allowed(self) -> list[str]:
        """Return the values to choose from; empty when anything of the kind goes."""
        return list(self.choices() if callable(self.choices) else self.choices)

    def bounds(self) -> str:
        """Return the bounds in words, such as "≥ 1, ≤ 1000"; empty where there are none."""
        signs = (("> ", self.above), ("≥ ", self.least), ("≤ ", self.most))
        return ", ".join(f"{sign}{bound:g}" for sign, bound in signs if bound is not None)


class Options:
    """Base of declared options; it adds to a dataclass two steps that a plugin may want to change."""

    __slots__ = ()

    includes: ClassVar[tuple[type, ...]] = ()
    """Other dataclasses whose options stand beside these, in the same section of a file."""

    def arguments(self) -> dict[str, Any]:
        """Return what the plugin is called with: every option that has a value, by its name."""
        return values_of(self)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (option, what is wrong and what to do) for options that contradict each other."""
        return iter(())


def option(
    help: str,
    *,
    default: object = dataclasses.MISSING,
    default_factory: Callable[[], Any] | None = None,
    takes: Takes | None = None,
    key: str | None = None,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    choices: Choices = (),
    must_exist: bool = False,
    variables: Collection[str] = (),
    plugins: str = "",
    starts_from: object = None,
) -> Any:
    """Declare a field of a dataclass as an option; `key` is its name in files, where that is another.

    `takes` is needed for paths, addresses and variables only; all else follows from the field's type.
    """
    facts = {
        "help": help, "takes": takes, "key": key, "least": least, "most": most, "above": above,
        "choices": choices, "must_exist": must_exist, "variables": tuple(variables), "plugins": plugins,
        "starts_from": starts_from,
    }  # fmt: skip
    given: dict[str, Any] = {"metadata": {_METADATA: facts}}
    if default_factory is not None:
        given["default_factory"] = default_factory
    elif default is not dataclasses.MISSING:
        given["default"] = default
    return dataclasses.field(**given)


@functools.cache
def options_of(declared: type) -> tuple[Option, ...]:
    """Return the options that a dataclass declares, those of its `includes` last."""
    own = list(_own(declared))
    own.sort(key=lambda each: not each.required)  # what must be written stands first
    return (*own, *(each for part in included_in(declared) for each in options_of(part)))


def included_in(declared: type) -> tuple[type, ...]:
    """Return the further declarations whose options a plugin takes beside its own (`includes`)."""
    return declared.includes if issubclass(declared, Options) else ()


def values_of(options: object) -> dict[str, Any]:
    """Return name -> value of the options of an instance that have a value."""
    pairs = ((field.name, getattr(options, field.name)) for field in _declared(type(options)))
    return {name: value for name, value in pairs if value is not None}


def built(declared: type, values: Mapping[str, Any]) -> Any:
    """Return an instance of a dataclass from values by key; what has no value has its default."""
    names = {field.metadata[_METADATA]["key"] or field.name: field.name for field in _declared(declared)}
    return declared(**{name: values[key] for key, name in names.items() if values.get(key) is not None})


def check_values(options: object) -> None:
    """Raise InputError for the first value that is not what its option takes; for `__post_init__`.

    What a file is checked for is checked for callers too, by the same declaration.
    """
    kind: type = type(options)
    # Fields and options stand in the same order; those of `includes` check themselves.
    for field, option in zip(_declared(kind), _own(kind), strict=True):
        value = getattr(options, field.name)
        if value is None and option.optional:
            continue
        wanted = _refused(option, value)
        if wanted:
            shown = repr(value) if isinstance(value, (str, float, bool)) else _brief(value)
            raise InputError(f"{kind.__name__} {field.name} is {shown}; it must be {wanted}.")


def declared_by(plugin: object) -> type | None:
    """Return the options that a plugin declares; None where it declares none."""
    found = getattr(plugin, "Options", None)
    return found if isinstance(found, type) and dataclasses.is_dataclass(found) else None


@functools.cache
def _own(declared: type) -> tuple[Option, ...]:
    """Return the options of a dataclass itself, in the order of its fields."""
    hints = typing.get_type_hints(declared)
    return tuple(_described(field, hints[field.name]) for field in _declared(declared))


def _refused(option: Option, value: object) -> str:
    """Return what a value must be if it is not; empty where it is."""
    if not _CHECKS[option.takes](value) or not all(_inside(option, each) for each in _numbers(option, value)):
        return TAKES[option.takes] + (f" {option.bounds()}" if option.bounds() else "")
    # Choices that are looked up (installed plugins) are the reader's to check: that is no matter of values.
    if (
        not callable(option.choices)
        and option.choices
        and isinstance(value, str)
        and value not in option.choices
    ):
        return f"one of {', '.join(option.choices)}. {did_you_mean(value, option.choices)}".rstrip(".")
    return ""


def _numbers(option: Option, value: Any) -> Collection[Any]:
    if option.takes in ("int", "number"):
        return (value,)
    return value.values() if option.takes == "numbers by name" else ()


def _inside(option: Option, value: Any) -> bool:
    return (
        _is_number(value)
        and (option.above is None or value > option.above)
        and (option.least is None or value >= option.least)
        and (option.most is None or value <= option.most)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_texts(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(_is_text, value))


_CHECKS: Mapping[Takes, Callable[[Any], bool]] = {
    "text": _is_text,
    "variable": _is_text,
    "path": lambda value: isinstance(value, (str, os.PathLike)),
    "key file": lambda value: isinstance(value, (str, os.PathLike)),
    "address": _is_text,
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _is_number,
    "flag": lambda value: isinstance(value, bool),
    "texts": _are_texts,
    "numbers by name": lambda value: isinstance(value, Mapping),
    "mapping": lambda value: isinstance(value, Mapping),
    "section": dataclasses.is_dataclass,
    "sections": lambda value: isinstance(value, Sequence) and all(map(dataclasses.is_dataclass, value)),
}


def _brief(value: object) -> str:
    plain = value is None or (isinstance(value, int) and abs(value) < 10**20)
    return repr(value) if plain else f"a {type(value).__name__}"


def _declared(kind: type) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(kind) if _METADATA in field.metadata]


def _described(field: dataclasses.Field[Any], hint: object) -> Option:
    facts = dict(field.metadata[_METADATA])
    takes, choices, nested = _taken(_without_none(hint), field.name)
    default = _default(field)
    facts["takes"] = facts["takes"] or takes
    facts["choices"] = facts["choices"] or choices
    return Option(
        name=facts.pop("key") or field.name,
        required=default is dataclasses.MISSING,
        default=None if default is dataclasses.MISSING else default,
        nested=nested,
        optional=_without_none(hint) is not hint,
        **facts,
    )


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _without_none(hint: object) -> Any:
    # Two spellings of one thing: Optional[X] is a Union, X | None a UnionType.
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kept = [each for each in typing.get_args(hint) if each is not type(None)]
        return kept[0] if len(kept) == 1 else hint
    return hint


def _taken(hint: object, name: str) -> tuple[Takes, tuple[str, ...], type | None]:
    """Return what a type takes, its choices, and the dataclass of a nested section."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint], (), None
    if origin is Literal:
        return "text", arguments, None
    if dataclasses.is_dataclass(hint):
        return "section", (), typing.cast("type", hint)
    if origin is not None and issubclass(origin, Mapping):
        return ("numbers by name" if arguments[1] in (int, float) else "mapping"), (), None
    if origin is not None and issubclass(origin, Collection):
        takes, choices, nested = _taken(arguments[0], name)
        return ("texts" if takes == "text" else "sections"), choices, nested
    raise TypeError(f"The option {name!r} is of a type that no file can hold: {hint}.")
