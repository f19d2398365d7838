"""Single values of a file: each is read as its option takes it, or noted as a mistake with its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from resift._internal import environment
from resift.config.problems import Problems
from resift.config.tree import Tree
from resift.errors import did_you_mean
from resift.validation import Option, find_problems
from resift.validation.options import TYPE_NAMES, OptionType, data_type

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
        return _TEXT_READERS.get(option.kind, ValueReader._plain)(self, option, tree, name)

    def wrong(self, option: Option, tree: Tree, name: str, hint: str = "") -> None:
        """Note a value that is not what the option takes."""
        self.problems.add(
            tree.line, f"{name} is {shown(tree.value)}; it must be {option.type_in_words()}.{hint}"
        )

    def _text(self, option: Option, tree: Tree, name: str) -> str | None:
        """Return text; a bare number or date where text is meant needs quotes."""
        if not isinstance(tree.value, str):
            hint = "" if isinstance(tree.value, (dict, list)) else " Put it in quotes if it is meant as text."
            self.wrong(option, tree, name, hint)
            return None
        if not tree.value.strip():
            self.problems.add(tree.line, f"{name} is empty; it must be {TYPE_NAMES[option.kind]}.")
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
                tree.line,
                f"{name} must be {TYPE_NAMES[option.kind]}; the secret itself stays out of the file.",
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

    def _plain(self, option: Option, tree: Tree, name: str) -> Any:
        """Return a number, a flag, a list of texts or a mapping as declared; note each mistake in it."""
        value = plain(tree)
        if option.kind == "texts":
            # One text alone is a list of one.
            items = [tree] if isinstance(value, str) else tree.value
            if isinstance(items, list):
                one = replace(option, kind="text")
                texts = [self._text(one, item, f"{name}[{i}]") for i, item in enumerate(items)]
                return tuple(text for text in texts if text is not None)
        problems = list(find_problems(value, data_type(option)))
        for problem in problems:
            # A value inside a mapping has its own line and name.
            inner = tree.value[problem.path[0]] if problem.path else tree
            number = replace(option, kind="number") if problem.path else option
            self.wrong(number, inner, problem.name(name))
        if not problems:
            return value
        kept = isinstance(value, dict) and all(problem.path for problem in problems)
        bad = {problem.path[0] for problem in problems if problem.path}
        return {key: item for key, item in value.items() if key not in bad} if kept else None

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


_TEXT_READERS: Mapping[OptionType, Callable[[ValueReader, Option, Tree, str], Any]] = {
    "text": ValueReader._text,
    "variable": ValueReader._variable,
    "path": ValueReader._path,
    "key file": ValueReader._key_file,
    "address": ValueReader._address,
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


def plain(tree: Tree) -> Any:
    """Return a tree as plain data, without lines."""
    if isinstance(tree.value, dict):
        return {key: plain(child) for key, child in tree.value.items()}
    if isinstance(tree.value, list):
        return [plain(child) for child in tree.value]
    return tree.value
