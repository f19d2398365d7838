"""Single values of a file: each is read as its option takes it, or noted as a mistake with its line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from resift import environment
from resift.config.problems import Problems
from resift.config.tree import Tree
from resift.errors import did_you_mean
from resift.options import TAKES, Option, Takes
from resift.types import JsonObject, JsonValue

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_PASSWORD = re.compile(r"://[^/@\s:]*:[^/@\s]+@")


class ValueReader:
    """Reads one value at a time; paths are relative to `folder`, ${VARIABLES} come from the environment."""

    def __init__(self, problems: Problems, *, folder: Path, expand: bool) -> None:
        self.problems = problems
        self.folder = folder
        self.expand = expand

    def read(self, option: Option, tree: Tree, name: str) -> Any:
        """Return the value, or None where it was noted as a mistake."""
        return _READERS[option.takes](self, option, tree, name)

    def wrong(self, option: Option, tree: Tree, name: str, hint: str = "") -> None:
        """Note a value that is not what the option takes."""
        bounds = f" {option.bounds()}" if option.bounds() else ""
        self.problems.add(
            tree.line, f"{name} is {shown(tree.value)}; it must be {TAKES[option.takes]}{bounds}.{hint}"
        )

    def _text(self, option: Option, tree: Tree, name: str) -> str | None:
        """Return text; a bare number or date where text is meant needs quotes."""
        if not isinstance(tree.value, str):
            hint = "" if isinstance(tree.value, (dict, list)) else " Put it in quotes if it is meant as text."
            self.wrong(option, tree, name, hint)
            return None
        if not tree.value.strip():
            self.problems.add(tree.line, f"{name} is empty; it must be {TAKES[option.takes]}.")
            return None
        allowed = option.allowed()
        if allowed and tree.value not in allowed:
            self.problems.add(tree.line, f"{name} is {tree.value!r}. {did_you_mean(tree.value, allowed)}")
            return None
        return tree.value

    def _variable(self, option: Option, tree: Tree, name: str) -> str | None:
        """Return the name of an environment variable; what is no such name may be the secret itself."""
        if not isinstance(tree.value, str) or not _NAME.fullmatch(tree.value):
            self.problems.add(
                tree.line, f"{name} must be {TAKES[option.takes]}; the secret itself stays out of the file."
            )
            return None
        if not environment.is_allowed(tree.value, option.variables):
            self.problems.add(tree.line, f"{name} is {environment.refusal(tree.value, option.variables)}.")
            return None
        return tree.value

    def _address(self, option: Option, tree: Tree, name: str) -> str | None:
        """Return an address with its variables filled in; refuses a password that stands in the file."""
        text = self._text(option, tree, name)
        if text is None:
            return None
        if _PASSWORD.search(environment.REFERENCE.sub("", text)):
            self.problems.add(
                tree.line, f"{name} holds a password. Keep it out of the file: write ${{VARIABLE}}."
            )
            return None
        return self._sent(option, text, tree, name)

    def _sent(self, option: Option, text: str, tree: Tree, name: str) -> str | None:
        """Fill in the variables of what leaves this machine: only those made for the place."""
        for variable in environment.REFERENCE.findall(text):
            if not environment.is_allowed(variable, option.variables):
                refusal = environment.refusal(variable, option.variables)
                self.problems.add(tree.line, f"{name} uses {refusal}.")
                return None
        return self._expanded(text, tree, name)

    def _path(self, option: Option, tree: Tree, name: str) -> str | None:
        """Return a path, relative ones from the file's folder; some stores take an address for one."""
        text = self._text(option, tree, name)
        if text is None:
            return None
        if "://" in text or text.startswith(("//", "\\\\")):
            return self._sent(option, text, tree, name)
        expanded = self._expanded(text, tree, name)
        if expanded is None or not self.expand:
            return expanded
        if "\0" in expanded:
            self.problems.add(tree.line, f"{name} holds a NUL character; that is no path.")
            return None
        if "://" in expanded or expanded.startswith(("//", "\\\\")):
            return self._sent(option, text, tree, name)
        return self._existing(option, text, self.folder / Path(expanded).expanduser(), tree, name)

    def _existing(self, option: Option, text: str, full: Path, tree: Tree, name: str) -> str | None:
        # The text as written: a variable's value belongs into no message.
        if option.must_exist and not full.exists():
            self.problems.add(
                tree.line, f"{name}: {text} does not exist (looked in {self.folder}). {option.help}"
            )
            return None
        return str(full)

    def _key_file(self, option: Option, tree: Tree, name: str) -> str | None:
        """Return the path of a file that a key may be read from."""
        path = self._path(option, tree, name)
        if path is None or not self.expand or environment.may_hold_key(Path(path), self.folder):
            return path
        self.problems.add(
            tree.line,
            f"{name}: {tree.value} lies outside {self.folder}: a file could send any file away. "
            f"Put the key beside the file, or allow its place: export {environment.ALLOWED_KEY_FILES}=…",
        )
        return None

    def _whole(self, option: Option, tree: Tree, name: str) -> int | None:
        if isinstance(tree.value, bool) or not isinstance(tree.value, int):
            self.wrong(option, tree, name)
            return None
        return tree.value if self._in_bounds(option, tree, name) else None

    def _number(self, option: Option, tree: Tree, name: str) -> float | None:
        value = tree.value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            self.wrong(option, tree, name)
            return None
        return value if self._in_bounds(option, tree, name) else None

    def _flag(self, option: Option, tree: Tree, name: str) -> bool | None:
        if isinstance(tree.value, bool):
            return tree.value
        self.wrong(option, tree, name)
        return None

    def _texts(self, option: Option, tree: Tree, name: str) -> tuple[str, ...] | None:
        """Return texts; one text alone is a list of one."""
        items = [tree] if isinstance(tree.value, str) else tree.value
        if not isinstance(items, list):
            self.wrong(option, tree, name)
            return None
        one = replace(option, takes="text")
        found = [self._text(one, item, f"{name}[{at}]") for at, item in enumerate(items)]
        return tuple(text for text in found if text is not None)

    def _numbers_by_name(self, option: Option, tree: Tree, name: str) -> dict[str, float] | None:
        if not isinstance(tree.value, dict):
            self.wrong(option, tree, name)
            return None
        one = replace(option, takes="number")
        found = {each: self._number(one, child, f"{name}.{each}") for each, child in tree.value.items()}
        return {each: number for each, number in found.items() if number is not None}

    def _mapping(self, option: Option, tree: Tree, name: str) -> JsonObject | None:
        """Return a free mapping as it is; whoever gets it checks it."""
        if not isinstance(tree.value, dict):
            self.wrong(option, tree, name)
            return None
        plain: JsonObject = _without_lines(tree)
        return plain

    def _in_bounds(self, option: Option, tree: Tree, name: str) -> bool:
        value = tree.value
        inside = (
            (option.above is None or value > option.above)
            and (option.least is None or value >= option.least)
            and (option.most is None or value <= option.most)
        )
        if not inside:
            self.wrong(option, tree, name)
        return inside

    def _expanded(self, text: str, tree: Tree, name: str) -> str | None:
        if not self.expand:
            return text
        missing = environment.unset(text)
        if missing:
            self.problems.add(
                tree.line, f"{name} uses ${{{missing[0]}}}, which is not set. Run: export {missing[0]}=…"
            )
            return None
        return environment.filled(text)


_READERS: Mapping[Takes, Callable[[ValueReader, Option, Tree, str], Any]] = {
    "text": ValueReader._text,
    "variable": ValueReader._variable,
    "path": ValueReader._path,
    "key file": ValueReader._key_file,
    "address": ValueReader._address,
    "int": ValueReader._whole,
    "number": ValueReader._number,
    "flag": ValueReader._flag,
    "texts": ValueReader._texts,
    "numbers by name": ValueReader._numbers_by_name,
    "mapping": ValueReader._mapping,
}


def shown(value: object) -> str:
    """Return a value as a person wrote it, shortened."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _without_lines(tree: Tree) -> JsonValue:
    if isinstance(tree.value, dict):
        return {key: _without_lines(child) for key, child in tree.value.items()}
    if isinstance(tree.value, list):
        return [_without_lines(child) for child in tree.value]
    return tree.value
