"""What reading a section of a file gives: checked values that know their lines."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

from resift.types import JsonObject, JsonValue

T = TypeVar("T")


class Settings(Mapping[str, Any]):
    """Checked values of one section by key, with their lines; nested sections are Settings again."""

    def __init__(
        self,
        values: JsonObject,
        *,
        lines: Mapping[str, int],
        line: int | None,
        written: Collection[str] = (),
        parts: Mapping[type, object] | None = None,
        plugin: Any = None,
        options: Any = None,
    ) -> None:
        self._values = values
        self._lines = lines
        self.parts = parts or {}
        """The values as instances of the dataclasses that declare them; without those that have mistakes."""
        self.line = line
        self.written = frozenset(written)
        """The keys that somebody wrote, also those whose value was refused."""
        self.plugin = plugin
        """What the section's name of a plugin stands for, where it has one."""
        self.options = options
        """The plugin's own options, an instance of what it declares."""

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def line_of(self, key: str) -> int | None:
        """Return the line of a key, or of the section where the key is not written."""
        return self._lines.get(key, self.line)

    def part(self, declared: type[T]) -> T:
        """Return the values as an instance of a dataclass that declares them."""
        found = self.parts[declared]
        assert isinstance(found, declared)  # noqa: S101 - narrows object
        return found

    def given(self, *names: str) -> JsonObject:
        """Return those of the keys that have a value, as arguments for a constructor."""
        return {name: self._values[name] for name in names if self._values.get(name) is not None}

    def arguments(self) -> JsonObject:
        """Return what the plugin is called with: its declared options, then the free ones under `options`."""
        declared = {} if self.options is None else self.options.arguments()
        return {**declared, **(self._values.get("options") or {})}

    def plain(self) -> JsonObject:
        """Return plain data, without keys that are not set."""
        return {key: _plain(value) for key, value in self._values.items() if value is not None}


def _plain(value: object) -> JsonValue:
    if isinstance(value, Settings):
        return value.plain()
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value
