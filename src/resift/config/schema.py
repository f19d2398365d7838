"""The words in which sections of a configuration are described. The sections themselves: `sections`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "text", "variable", "path", "address", "int", "number", "flag", "texts", "weights", "options",
    "section", "sections",
]  # fmt: skip
"""What a key takes. `path` and `address` may use ${VARIABLES}; `variable` is the name of one, for secrets;
`options` is a free mapping for plugins."""

KIND_WORDS: Mapping[str, str] = {
    "text": "text",
    "variable": "the name of an environment variable, such as VOYAGE_API_KEY",
    "path": "a path",
    "address": "an address",
    "int": "a whole number",
    "number": "a number",
    "flag": "true or false",
    "texts": "a list of texts",
    "weights": "a mapping of names to numbers",
    "options": "a mapping",
    "section": "a mapping",
    "sections": "a list of mappings",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key: what it takes, between which bounds, and what it does."""

    name: str
    kind: Kind
    about: str
    required: bool = False
    default: Any = None
    least: float | None = None
    most: float | None = None
    above: float | None = None
    choices: Callable[[], Sequence[str]] | Sequence[str] = ()
    section: Section | None = None
    must_exist: bool = False

    def allowed(self) -> list[str]:
        """Return the values to choose from; empty when anything of the kind goes."""
        return list(self.choices() if callable(self.choices) else self.choices)

    def bounds(self) -> str:
        """Return the bounds in words, such as "≥ 1, ≤ 1000"; empty where there are none."""
        told = (("> ", self.above), ("≥ ", self.least), ("≤ ", self.most))
        return ", ".join(f"{sign}{bound:g}" for sign, bound in told if bound is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A mapping with known keys; `by_kind` adds keys that belong to one value of the key `kind`."""

    name: str
    about: str
    keys: tuple[Key, ...]
    by_kind: Mapping[str, tuple[Key, ...]] = field(default_factory=dict)

    def keys_for(self, kind: str | None) -> dict[str, Key]:
        """Return name -> key for a mapping of that kind."""
        return {key.name: key for key in (*self.keys, *self.by_kind.get(kind or "", ()))}

    def kinds_with(self, name: str) -> list[str]:
        """Return the kinds that have a key of that name."""
        return [kind for kind, keys in self.by_kind.items() if any(key.name == name for key in keys)]


class Settings(Mapping[str, Any]):
    """Checked values of one section; nested sections are Settings again. Knows its lines for late errors."""

    def __init__(
        self,
        values: dict[str, Any],
        *,
        lines: Mapping[str, int],
        line: int | None,
        written: Collection[str] = (),
    ) -> None:
        self._values = values
        self._lines = lines
        self.line = line
        self.written = frozenset(written)
        """The keys that somebody wrote, also those whose value was refused."""

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def line_of(self, key: str) -> int | None:
        """Return the line of a key, or of the section where the key is not written."""
        return self._lines.get(key, self.line)

    def given(self, *names: str) -> dict[str, Any]:
        """Return those of the keys that have a value, as arguments for a constructor."""
        return {name: self._values[name] for name in names if self._values.get(name) is not None}

    def plain(self) -> dict[str, Any]:
        """Return plain data, without keys that are not set."""
        return {key: _plain(value) for key, value in self._values.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.plain()
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value
