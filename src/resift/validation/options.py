"""Options of a plugin or a stage, declared once as the fields of a dataclass next to it.

    from resift.validation import Options, option

    @dataclass(frozen=True, kw_only=True)
    class RoundRobinOptions(Options):
        start: int = option("Position of the list that goes first.", default=0, min=0)

    class RoundRobin:
        Options = RoundRobinOptions

The field's type, bounds and text define the keys of a pipeline file, their checks with line numbers,
`resift config check`, the reference page and every error message.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from resift._internal.lazy_exports import warn_renamed
from resift.errors import InputError, did_you_mean
from resift.validation.declared_types import find_problems, type_name

C = TypeVar("C", bound=type)
T = TypeVar("T")

OptionType = Literal[
    "text", "variable", "path", "key file", "address", "int", "number", "flag", "texts", "numbers by name",
    "names or weights", "mapping", "section", "sections",
]  # fmt: skip
"""The type of an option. It follows from the field's annotation, except for four kinds of text: a `path`, an
`address` (both may use ${VARIABLES}), a `key file`, and a `variable` (the name of a variable with a secret)."""

TYPE_NAMES: Mapping[OptionType, str] = {
    "text": "text",
    "variable": "the name of an environment variable, such as VOYAGE_API_KEY",
    "path": "a path",
    "key file": "a path",
    "address": "an address",
    "int": "an integer",
    "number": "a number",
    "flag": "true or false",
    "texts": "a list of texts",
    "numbers by name": "a mapping of names to numbers",
    "names or weights": "a list of names, or a mapping of names to weights",
    "mapping": "a mapping",
    "section": "a mapping",
    "sections": "a list of mappings",
}

_SCALARS: Mapping[object, OptionType] = {str: "text", int: "int", float: "number", bool: "flag"}
_METADATA = "resift.option"

Choices = Sequence[str] | Callable[[], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Option:
    """One option: its type, its bounds, and what it does."""

    name: str
    kind: OptionType
    help: str
    required: bool = False
    default: object = None
    min: float | None = None
    max: float | None = None
    gt: float | None = None
    choices: Choices = ()
    advice: Callable[[str], str] | None = None
    """Returns advice for a value that is not one of the choices."""
    must_exist: bool = False
    variables: tuple[str, ...] = ()
    """Environment variables intended for this option; any other must be allowed outside the file."""
    plugins: str = ""
    """The entry-point group of the plugin named by the value; the plugin's options join the section."""
    nested: type | None = None
    """The dataclass of a nested section."""
    defaults_from: object = None
    """An instance with the defaults of the nested section."""
    optional: bool = False
    """Whether None is allowed."""
    aliases: tuple[str, ...] = ()
    """Names from earlier versions; still accepted, with a DeprecationWarning."""

    def allowed(self) -> list[str]:
        """Return the allowed values; empty if there is no fixed set of values."""
        return list(self.choices() if callable(self.choices) else self.choices)

    def bounds(self) -> str:
        """Return the bounds as text, such as "≥ 1, ≤ 1000"; empty if there are none."""
        signs = (("> ", self.gt), ("≥ ", self.min), ("≤ ", self.max))
        return ", ".join(f"{sign}{bound:g}" for sign, bound in signs if bound is not None)

    def type_in_words(self) -> str:
        """Return the type with its bounds, such as "an integer ≥ 1"."""
        return f"{TYPE_NAMES[self.kind]} {self.bounds()}".rstrip()


class Options:
    """Base class of declared options, with two methods that a plugin may override."""

    __slots__ = ()

    includes: ClassVar[tuple[type, ...]] = ()
    """Other option dataclasses whose keys are part of the same section of a file."""

    def arguments(self) -> dict[str, object]:
        """Return the keyword arguments for the plugin: every option that has a value, by name."""
        return option_values(self)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (option, message) for options that contradict each other."""
        return iter(())


def option(
    help: str,
    *,
    default: object = dataclasses.MISSING,
    default_factory: Callable[[], object] | None = None,
    kind: OptionType | None = None,
    key: str | None = None,
    aliases: Collection[str] = (),
    min: float | None = None,
    max: float | None = None,
    gt: float | None = None,
    choices: Choices = (),
    advice: Callable[[str], str] | None = None,
    must_exist: bool = False,
    variables: Collection[str] = (),
    plugins: str = "",
    defaults_from: object = None,
    **old_names: object,
) -> Any:
    """Declare a dataclass field as an option; `key` is its name in files if that differs.

    `kind` is required only for paths, addresses and variables; otherwise it follows from the annotation.
    `aliases` are names from earlier versions that files may still use. If Python callers may use them as well,
    decorate the dataclass with `accept_aliases`.
    """
    facts = {
        "help": help, "kind": kind, "key": key, "min": min, "max": max, "gt": gt, "choices": choices,
        "advice": advice, "must_exist": must_exist, "variables": tuple(variables), "plugins": plugins,
        "defaults_from": defaults_from, "aliases": tuple(aliases),
    }  # fmt: skip
    for name, value in old_names.items():
        if name not in _OLD_ARGUMENTS:
            raise TypeError(f"option() got an unexpected keyword argument {name!r}")
        warn_renamed(f"option({name}=…)", f"{_OLD_ARGUMENTS[name]}=", stacklevel=3)
        facts[_OLD_ARGUMENTS[name]] = value
    metadata = {_METADATA: facts}
    if default_factory is not None:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    if default is not dataclasses.MISSING:
        return dataclasses.field(default=default, metadata=metadata)
    return dataclasses.field(metadata=metadata)


_OLD_ARGUMENTS = {
    "least": "min", "most": "max", "above": "gt", "takes": "kind", "starts_from": "defaults_from",
}  # fmt: skip


def accept_aliases(declared: C) -> C:
    """Let a dataclass accept and return its options under their aliases, with a DeprecationWarning.

    Put it above `@dataclass`. `dataclasses.replace` accepts the old names as well.
    """
    names = {alias: field.name for field in _option_fields(declared) for alias in field.metadata[_METADATA]["aliases"]}
    construct: Callable[..., None] = vars(declared)["__init__"]

    @functools.wraps(construct)
    def construct_with_aliases(self: object, *args: object, **kwargs: object) -> None:
        for alias in names.keys() & kwargs.keys():
            warn_renamed(f"{declared.__name__} {alias}", names[alias])
            kwargs[names[alias]] = kwargs.pop(alias)
        construct(self, *args, **kwargs)

    def old_attribute(alias: str, name: str) -> property:
        def read(self: object) -> object:
            warn_renamed(f"{declared.__name__}.{alias}", name)
            return getattr(self, name)

        return property(read)

    setattr(declared, "__init__", construct_with_aliases)  # noqa: B010 - mypy rejects the assignment
    for alias, name in names.items():
        setattr(declared, alias, old_attribute(alias, name))
    return declared


@functools.cache
def declared_options(declared: type) -> tuple[Option, ...]:
    """Return the options of a dataclass: required ones first, those of its `includes` last."""
    own = sorted(_own_options(declared), key=lambda item: not item.required)
    return (*own, *(item for part in included_options(declared) for item in declared_options(part)))


def included_options(declared: type) -> tuple[type, ...]:
    """Return the other option dataclasses that are part of the same section."""
    return declared.includes if issubclass(declared, Options) else ()


def options_class(plugin: object) -> type | None:
    """Return the option dataclass of a plugin; None if it declares none."""
    declared = getattr(plugin, "Options", None)
    return declared if isinstance(declared, type) and dataclasses.is_dataclass(declared) else None


def option_values(options: object) -> dict[str, Any]:
    """Return name -> value for the options of an instance that have a value."""
    pairs = ((field.name, getattr(options, field.name)) for field in _option_fields(type(options)))
    return {name: value for name, value in pairs if value is not None}


def build_options(declared: type[T], values: Mapping[str, object]) -> T:
    """Return an instance of an option dataclass from values by key; missing ones get their default."""
    names = {field.metadata[_METADATA]["key"] or field.name: field.name for field in _option_fields(declared)}
    return declared(**{name: values[key] for key, name in names.items() if values.get(key) is not None})


def check_options(options: object) -> None:
    """Raise InputError for the first invalid option of an instance; call it in `__post_init__`."""
    owner: type = type(options)
    for field, declared in zip(_option_fields(owner), _own_options(owner), strict=True):
        value = getattr(options, field.name)
        # Most values are defaults, which need no check.
        if value is declared.default or (value is None and declared.optional):
            continue
        expected = _violation(declared, value)
        if expected:
            plain = value is None or isinstance(value, (str, float)) or (isinstance(value, int) and abs(value) < 10**20)
            description = repr(value) if plain else type_name(value)
            raise InputError(f"{owner.__name__} {field.name} is {description}; it must be {expected}.")


def _violation(declared: Option, value: object) -> str:
    """Return the expected type or choices if a value is invalid; an empty string if it is valid."""
    if declared.kind == "section":
        valid = dataclasses.is_dataclass(value)
    elif declared.kind == "sections":
        valid = isinstance(value, Sequence) and all(map(dataclasses.is_dataclass, value))
    elif declared.kind in ("path", "key file"):
        valid = isinstance(value, (str, os.PathLike))
    else:
        valid = next(find_problems(value, data_type(declared)), None) is None
    if not valid:
        return declared.type_in_words()
    # Names of installed plugins are looked up when a file is read, not for every instance.
    choices = () if callable(declared.choices) else declared.choices
    if choices and isinstance(value, str) and value not in choices:
        return f"one of {', '.join(choices)}. {did_you_mean(value, choices)}".rstrip(".")
    return ""


@functools.cache
def data_type(declared: Option) -> object:
    """Return the type of an option's value as plain data, with its bounds."""
    from msgspec import Meta

    limits = Meta(gt=declared.gt, le=declared.max) if declared.min is None else Meta(ge=declared.min, le=declared.max)
    number = typing.Annotated[float, limits]
    data_types: dict[OptionType, object] = {
        "int": typing.Annotated[int, limits],
        "number": number,
        "flag": bool,
        "texts": list[str],
        "numbers by name": dict[str, number],
        "names or weights": str | list[str] | dict[str, number],
        "mapping": dict[str, object],
    }
    return data_types.get(declared.kind, str)


def _option_fields(kind: type) -> list[dataclasses.Field[object]]:
    return [field for field in dataclasses.fields(kind) if _METADATA in field.metadata]


@functools.cache
def _own_options(declared: type) -> tuple[Option, ...]:
    """Return the options of a dataclass without those of its `includes`, in the order of its fields."""
    hints = typing.get_type_hints(declared)
    return tuple(_describe(field, hints[field.name]) for field in _option_fields(declared))


def _describe(field: dataclasses.Field[object], hint: object) -> Option:
    facts = dict(field.metadata[_METADATA])
    inner: object = hint
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        inner = members[0] if len(members) == 1 else hint
    choices: tuple[str, ...] = ()
    kind, nested = facts["kind"], None
    if kind != "names or weights":  # its type is a union
        kind, choices, nested = _option_type(inner, field.name)
    factory = field.default_factory
    default = field.default if factory is dataclasses.MISSING else factory()
    facts["kind"] = facts["kind"] or kind
    facts["choices"] = facts["choices"] or choices
    return Option(
        name=facts.pop("key") or field.name,
        required=default is dataclasses.MISSING,
        default=None if default is dataclasses.MISSING else default,
        nested=nested,
        optional=inner is not hint,
        **facts,
    )


def _option_type(hint: object, name: str) -> tuple[OptionType, tuple[str, ...], type | None]:
    """Return the option type of an annotation, its choices, and the dataclass of a nested section."""
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
        item, choices, nested = _option_type(arguments[0], name)
        return ("texts" if item == "text" else "sections"), choices, nested
    raise TypeError(f"The option {name!r} has a type that a file cannot contain: {hint}.")
