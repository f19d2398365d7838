"""A tree and a section in, checked settings out. Each mistake is noted with its line; none stops the rest."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from resift.config.problems import Problems
from resift.config.schema import KIND_WORDS, Key, Section, Settings
from resift.config.tree import Tree
from resift.errors import did_you_mean

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_PASSWORD = re.compile(r"://[^/@\s:]*:[^/@\s]+@")
_SECRETS = frozenset({"api_key", "apikey", "key", "token", "password", "secret"})


class Reader:
    """Checks trees against sections; paths are relative to `folder`, ${VARIABLES} come from the environment.

    With `expand=False` paths and addresses stay as written, for showing them.
    """

    def __init__(self, problems: Problems, *, folder: Path, expand: bool = True) -> None:
        self.problems = problems
        self.folder = folder
        self.expand = expand

    def section(self, section: Section, tree: Tree, where: str) -> Settings | None:
        """Return the settings of a mapping, or None where it is no mapping at all."""
        if not isinstance(tree.value, dict):
            self.problems.add(tree.line, f"{where} is {_shown(tree.value)}; it must be a mapping of keys.")
            return None
        kind = _kind(tree) if section.by_kind else None
        keys = section.keys_for(kind)
        # With a kind that does not exist, nobody knows which keys it would have.
        lost = kind is not None and kind not in keys["kind"].allowed()
        for name in tree.value:
            if name not in keys and not (lost and section.kinds_with(name)):
                self._unknown(section, keys, name, tree, where)
        values = {key.name: self._value(key, tree, where) for key in keys.values()}
        return Settings(values, lines=tree.key_lines, line=tree.line, written=tree.value)

    def _unknown(self, section: Section, keys: Mapping[str, Key], name: str, tree: Tree, where: str) -> None:
        line = tree.key_lines.get(name)
        others = section.kinds_with(name)
        if name in _SECRETS:
            self.problems.add(
                line,
                f"{where} holds a secret under {name!r}. Keep it out of the file: use api_key_env.",
            )
        elif others:
            self.problems.add(line, f"{where} has no key {name!r}; that belongs to kind {', '.join(others)}.")
        else:
            self.problems.add(line, f"{where} has no key {name!r}. {did_you_mean(name, keys)}")

    def _value(self, key: Key, tree: Tree, where: str) -> Any:
        name = f"{where}.{key.name}" if where != "The file" else key.name
        given = tree.value.get(key.name)
        if given is None or given.value is None:
            if key.required:
                self.problems.add(tree.line, f"{where} needs the key {key.name!r}: {key.about}")
            return key.default
        found = _READERS[key.kind](self, key, given, name)
        return key.default if found is None else found

    def scalar(self, key: Key, tree: Tree, name: str) -> str | None:
        """Return text; a bare number or date where text is meant needs quotes."""
        if not isinstance(tree.value, str):
            hint = "" if isinstance(tree.value, (dict, list)) else " Put it in quotes if it is meant as text."
            self._wrong(key, tree, name, hint)
            return None
        if not tree.value.strip():
            self.problems.add(tree.line, f"{name} is empty; it must be {KIND_WORDS[key.kind]}.")
            return None
        allowed = key.allowed()
        if allowed and tree.value not in allowed:
            self.problems.add(tree.line, f"{name} is {tree.value!r}. {did_you_mean(tree.value, allowed)}")
            return None
        return tree.value

    def variable(self, key: Key, tree: Tree, name: str) -> str | None:
        """Return the name of an environment variable; what is no such name may be the secret itself."""
        if isinstance(tree.value, str) and _NAME.fullmatch(tree.value):
            return tree.value
        self.problems.add(
            tree.line, f"{name} must be {KIND_WORDS[key.kind]}; the secret itself stays out of the file."
        )
        return None

    def address(self, key: Key, tree: Tree, name: str) -> str | None:
        """Return an address with its variables filled in; refuses a password that stands in the file."""
        text = self.scalar(key, tree, name)
        if text is not None and _PASSWORD.search(_VARIABLE.sub("", text)):
            self.problems.add(
                tree.line, f"{name} holds a password. Keep it out of the file: write ${{VARIABLE}}."
            )
            return None
        return None if text is None else self._expanded(text, tree, name)

    def path(self, key: Key, tree: Tree, name: str) -> str | None:
        """Return a path, relative ones from the file's folder."""
        text = self.scalar(key, tree, name)
        text = None if text is None else self._expanded(text, tree, name)
        if text is None or not self.expand:
            return text
        if "\0" in text:
            self.problems.add(tree.line, f"{name} holds a NUL character; that is no path.")
            return None
        if "://" in text:
            return text
        full = self.folder / Path(text).expanduser()
        if key.must_exist and not full.exists():
            self.problems.add(
                tree.line, f"{name}: {text} does not exist (looked in {self.folder}). {key.about}"
            )
            return None
        return str(full)

    def whole(self, key: Key, tree: Tree, name: str) -> int | None:
        """Return a whole number within its bounds."""
        if isinstance(tree.value, bool) or not isinstance(tree.value, int):
            self._wrong(key, tree, name)
            return None
        return tree.value if self._in_bounds(key, tree, name) else None

    def number(self, key: Key, tree: Tree, name: str) -> float | None:
        """Return a finite number within its bounds."""
        value = tree.value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            self._wrong(key, tree, name)
            return None
        return value if self._in_bounds(key, tree, name) else None

    def flag(self, key: Key, tree: Tree, name: str) -> bool | None:
        """Return true or false."""
        if isinstance(tree.value, bool):
            return tree.value
        self._wrong(key, tree, name)
        return None

    def texts(self, key: Key, tree: Tree, name: str) -> list[str] | None:
        """Return a list of texts; one text alone is a list of one."""
        items = [tree] if isinstance(tree.value, str) else tree.value
        if not isinstance(items, list):
            self._wrong(key, tree, name)
            return None
        one = replace(key, kind="text")
        found = [self.scalar(one, item, f"{name}[{at}]") for at, item in enumerate(items)]
        return [text for text in found if text is not None]

    def weights(self, key: Key, tree: Tree, name: str) -> dict[str, float] | None:
        """Return a mapping of names to numbers within the key's bounds."""
        if not isinstance(tree.value, dict):
            self._wrong(key, tree, name)
            return None
        one = replace(key, kind="number")
        found = {each: self.number(one, child, f"{name}.{each}") for each, child in tree.value.items()}
        return {each: number for each, number in found.items() if number is not None}

    def options(self, key: Key, tree: Tree, name: str) -> dict[str, Any] | None:
        """Return a free mapping as it is; whoever gets it checks it."""
        if not isinstance(tree.value, dict):
            self._wrong(key, tree, name)
            return None
        plain: dict[str, Any] = _without_lines(tree)
        return plain

    def nested(self, key: Key, tree: Tree, name: str) -> Settings | None:
        """Return the settings of a nested section."""
        assert key.section is not None  # noqa: S101 - every key of this kind has one
        return self.section(key.section, tree, name)

    def listed(self, key: Key, tree: Tree, name: str) -> list[Settings] | None:
        """Return the settings of every mapping in a list."""
        assert key.section is not None  # noqa: S101 - every key of this kind has one
        if not isinstance(tree.value, list):
            self._wrong(key, tree, name)
            return None
        if key.required and not tree.value:
            self.problems.add(tree.line, f"{name} is empty; it needs at least one entry.")
        found = [
            self.section(key.section, item, _entry(name, at, item)) for at, item in enumerate(tree.value)
        ]
        return [settings for settings in found if settings is not None]

    def _wrong(self, key: Key, tree: Tree, name: str, hint: str = "") -> None:
        bounds = f" {key.bounds()}" if key.bounds() else ""
        self.problems.add(
            tree.line, f"{name} is {_shown(tree.value)}; it must be {KIND_WORDS[key.kind]}{bounds}.{hint}"
        )

    def _in_bounds(self, key: Key, tree: Tree, name: str) -> bool:
        value = tree.value
        inside = (
            (key.above is None or value > key.above)
            and (key.least is None or value >= key.least)
            and (key.most is None or value <= key.most)
        )
        if not inside:
            self._wrong(key, tree, name)
        return inside

    def _expanded(self, text: str, tree: Tree, name: str) -> str | None:
        if not self.expand:
            return text
        unset = [found for found in _VARIABLE.findall(text) if not os.environ.get(found)]
        if unset:
            self.problems.add(
                tree.line, f"{name} uses ${{{unset[0]}}}, which is not set. Run: export {unset[0]}=…"
            )
            return None
        return _VARIABLE.sub(lambda match: os.environ[match[1]], text)


_READERS: Mapping[str, Callable[[Reader, Key, Tree, str], Any]] = {
    "text": Reader.scalar,
    "variable": Reader.variable,
    "path": Reader.path,
    "address": Reader.address,
    "int": Reader.whole,
    "number": Reader.number,
    "flag": Reader.flag,
    "texts": Reader.texts,
    "weights": Reader.weights,
    "options": Reader.options,
    "section": Reader.nested,
    "sections": Reader.listed,
}


def _kind(tree: Tree) -> str | None:
    given = tree.value.get("kind")
    return given.value if given is not None and isinstance(given.value, str) else None


def _entry(name: str, at: int, tree: Tree) -> str:
    """Return what a list entry is called in messages: by its own name where it has one."""
    own = tree.value.get("name") if isinstance(tree.value, dict) else None
    return f"{name}[{own.value if own and isinstance(own.value, str) else at}]"


def _shown(value: Any) -> str:
    """Return a value as a person wrote it, shortened."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _without_lines(tree: Tree) -> Any:
    if isinstance(tree.value, dict):
        return {key: _without_lines(child) for key, child in tree.value.items()}
    if isinstance(tree.value, list):
        return [_without_lines(child) for child in tree.value]
    return tree.value
