"""Check YAML nodes against declared options and return settings. Every mistake is reported with its line."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from resift._internal import environment
from resift._internal.lazy_exports import warn_renamed
from resift._internal.renamed_modules import FITTED
from resift.config.yaml_nodes import YamlNode
from resift.errors import ConfigError, InputError, ResiftError, did_you_mean, shell_path
from resift.plugins import load_plugin
from resift.rerankers.hosted.endpoints import is_public_name
from resift.types import JsonObject, JsonValue
from resift.validation import Option, Options, declared_options, find_problems, option_values, options_class
from resift.validation.options import TYPE_NAMES, build_options, data_type, included_options

T = TypeVar("T")

# Pipeline files are committed and shared, so any secret in them is a leak.
_SECRETS = frozenset({"api_key", "apikey", "key", "token", "password", "secret"})
_VARIABLE_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_PASSWORD = re.compile(r"://[^/@\s:]*:[^/@\s]+@")

ROOT = "The file"  # name of the top level in messages
# Placeholders for a plugin that does not exist, and for one that cannot be loaded.
_UNKNOWN, _BROKEN = object(), object()


@dataclass(slots=True)
class Problems:
    """The mistakes in one file, or in one dict, which has no line numbers."""

    file: str | None = None
    found: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int | None, message: str) -> None:
        """Record a mistake: what is wrong and what to do about it."""
        self.found.append((line or 0, message))

    def lines(self) -> list[str]:
        """Return `file:line: message` for each mistake, in the order of the file."""
        return [": ".join(filter(None, (self.place(line), message))) for line, message in sorted(self.found)]

    def place(self, line: int | None) -> str:
        """Return `file:line`, or as much of it as is known."""
        return ":".join(str(part) for part in (self.file, line) if part)

    def raise_first(self) -> None:
        """Raise ConfigError if there are mistakes, with the first one in full and the number of others."""
        if not self.found:
            return
        (line, message), *others = sorted(self.found)
        command = f"resift config check {shell_path(self.file)}" if self.file else "resift config check"
        more = f" ({len(others)} more: run {command})" if others else ""
        error = ConfigError(message + more, file=self.file, line=line or None)
        if others:
            error.add_note("\n".join(self.lines()[1:]))
        raise error


class Settings(dict[str, JsonValue]):
    """Checked values of one section by key, with their lines; nested sections are also Settings."""

    def __init__(
        self, values: JsonObject, node: YamlNode, parts: Mapping[type, object], plugin: Any, options: Any
    ) -> None:
        super().__init__(values)
        self._key_lines = node.key_lines
        self.line = node.line
        self.parts = parts  # instances of the dataclasses that declare the values, except those with mistakes
        self.written = frozenset(node.value)  # the keys in the file, including those whose value is invalid
        self.plugin = plugin  # the class or factory named by the section
        self.options = options  # the options of the plugin, as an instance of its option dataclass

    def key_line(self, key: str) -> int | None:
        """Return the line of a key, or of the section if the key is not in the file."""
        return self._key_lines.get(key, self.line)

    def part(self, declared: type[T]) -> T:
        """Return the values as an instance of a dataclass that declares them."""
        return cast("T", self.parts[declared])

    def select(self, *names: str) -> JsonObject:
        """Return the keys that have a value, as arguments for a constructor."""
        return {name: self[name] for name in names if self.get(name) is not None}

    def arguments(self) -> JsonObject:
        """Return the arguments of the plugin: its declared options, and undeclared ones under `options`."""
        declared = {} if self.options is None else self.options.arguments()
        return {**declared, **(self.get("options") or {})}

    def plain(self) -> JsonObject:
        """Return plain data, without keys that have no value."""
        return {key: _plain(value) for key, value in self.items() if value is not None}


def _plain(value: object) -> JsonValue:
    if isinstance(value, Settings):
        return value.plain()
    if dataclasses.is_dataclass(value):  # the default of a nested section
        value = option_values(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


class Reader:
    """Checks nodes against declared options. With `expand=False` paths and addresses stay as written, for display."""

    def __init__(self, problems: Problems, *, folder: Path, expand: bool = True) -> None:
        self.problems = problems
        self.folder = folder
        self.expand = expand

    def section(self, declared: type, node: YamlNode, where: str, *, base: object = None) -> Settings | None:
        """Return the settings of a mapping; None if the node is not a mapping."""
        if not isinstance(node.value, dict):
            self.problems.add(node.line, f"{where} is {_show(node.value)}; it must be a mapping of keys.")
            return None
        options = {option.name: option for option in declared_options(declared)}
        chooser = next((option for option in options.values() if option.plugins), None)
        plugin = None if chooser is None else self._load_plugin(chooser, node)
        plugin_options = options_class(plugin)
        if plugin_options is not None:
            # The section's keys win: a plugin cannot change the meaning of `name` or `k`.
            options = {**{option.name: option for option in declared_options(plugin_options)}, **options}
        self._rename_old_keys(options, node, where)
        # Report unknown keys before values: a misspelled key explains the "needs the key" that follows it.
        for name in node.value:
            # If the plugin cannot be loaded, its keys are not known.
            missing_plugin = plugin is _BROKEN or (plugin is _UNKNOWN and _plugins_with(chooser, name))
            if name not in options and not missing_plugin:
                self._report_unknown_key(name, node, where, chooser, options)
        defaults = {} if base is None else option_values(base)
        values = {name: self._value(option, node, where, defaults) for name, option in options.items()}
        classes = [declared, *included_options(declared), *([plugin_options] if plugin_options else [])]
        parts = self._build_parts(classes, values, node, where)
        # Values under `options` are not checked, so declared options are not allowed there.
        declared_names = {} if plugin_options is None else {option.name for option in declared_options(plugin_options)}
        for name in values.get("options") or ():
            if name in declared_names or name in _SECRETS:
                hint = "Keep it out of the file." if name in _SECRETS else "Move it out of `options`."
                line = node.key_lines.get("options", node.line)
                self.problems.add(line, f"{where}.options contains {name!r}. {hint}")
        return Settings(values, node, parts, plugin, None if plugin_options is None else parts.get(plugin_options))

    def _load_plugin(self, chooser: Option, node: YamlNode) -> Any:
        child = node.get(chooser.name)
        name = chooser.default if child is None else child.value
        if name is None:
            return None
        line = node.key_lines.get(chooser.name, node.line)
        allowed = chooser.allowed()
        if not allowed:
            self.problems.add(line, f"No installed package provides {name!r} in the group {chooser.plugins}.")
        if not isinstance(name, str) or name not in allowed:
            return _UNKNOWN
        try:
            return load_plugin(chooser.plugins, name)
        except ResiftError as exc:
            self.problems.add(line, str(exc))
            return _BROKEN

    def _rename_old_keys(self, options: Mapping[str, Option], node: YamlNode, where: str) -> None:
        """Move values from keys of earlier versions to the current keys, with a DeprecationWarning."""
        renamed = {alias: option.name for option in options.values() for alias in option.aliases}
        for alias in [key for key in node.value if key in renamed and key not in options]:
            name, line = renamed[alias], node.key_lines.pop(alias, None)
            child = node.value.pop(alias)
            if name in node.value:
                self.problems.add(line, f"{where} has both {name!r} and {alias!r}, its old name. Remove {alias!r}.")
                continue
            place = self.problems.place(line)
            warn_renamed(f"{place}: {alias}" if place else f"{where}.{alias}", name)
            node.value[name] = child
            if line is not None:
                node.key_lines[name] = line

    def _report_unknown_key(
        self, name: str, node: YamlNode, where: str, chooser: Option | None, options: Mapping[str, Option]
    ) -> None:
        others = _plugins_with(chooser, name)
        if name in ("trust", "adaptive_weights"):
            message = f"{where} has no key {name!r}: {FITTED}."
        elif name in _SECRETS:
            message = f"{where} contains a secret under {name!r}. Keep it out of the file: use api_key_env."
        elif chooser is not None and others:
            message = f"{where} has no key {name!r}; that key belongs to {chooser.name} {', '.join(others)}."
        else:
            message = f"{where} has no key {name!r}. {did_you_mean(name, options)}"
        self.problems.add(node.key_lines.get(name), message)

    def _value(self, option: Option, node: YamlNode, where: str, defaults: Mapping[str, object]) -> JsonValue:
        """Return the value of an option; its default if it is missing or invalid."""
        name = f"{where}.{option.name}" if where != ROOT else option.name
        child = node.get(option.name)
        value: object
        if child is None:
            if option.required and option.name not in defaults:
                self.problems.add(node.line, f"{where} needs the key {option.name!r}: {option.help}")
            value = None
        elif option.nested is not None and option.kind == "section":
            value = self.section(option.nested, child, name, base=option.defaults_from)
        elif option.nested is not None and option.kind == "sections":
            value = self._section_list(option, option.nested, child, name)
        else:
            readers = {"variable": self._variable, "path": self._path, "key file": self._path, "text": self._text}
            value = {**readers, "address": self._address}.get(option.kind, self._plain_value)(option, child, name)
        return defaults.get(option.name, option.default) if value is None else value

    def _section_list(self, option: Option, nested: type, node: YamlNode, name: str) -> list[Settings] | None:
        if not isinstance(node.value, list):
            self._report_wrong_type(option, node, name)
            return None
        if option.required and not node.value:
            self.problems.add(node.line, f"{name} is empty; it needs at least one entry.")
        # Messages use the entry's name if it has one.
        names = [getattr(item.get("name"), "value", None) for item in node.value]
        labels = [own_name if isinstance(own_name, str) else i for i, own_name in enumerate(names)]
        pairs = zip(node.value, labels, strict=True)
        sections = [self.section(nested, item, f"{name}[{label}]") for item, label in pairs]
        return [section for section in sections if section is not None]

    def _build_parts(
        self, classes: Sequence[type], values: JsonObject, node: YamlNode, where: str
    ) -> dict[type, object]:
        """Return the values as instances of their dataclasses; report the values that these reject."""
        parts: dict[type, object] = {}
        for declared in classes:
            options = declared_options(declared)
            if any(option.required and values[option.name] is None for option in options):
                continue  # reported already
            arguments = {}
            for option in options:
                value = values[option.name]
                if option.nested is not None and isinstance(value, list):
                    nested = option.nested
                    value = tuple(section.parts[nested] for section in value if nested in section.parts)
                elif option.nested is not None and isinstance(value, Settings):
                    value = value.parts.get(option.nested)
                arguments[option.name] = value
            try:
                parts[declared] = build_options(declared, arguments)
            except InputError as exc:
                self.problems.add(node.line, f"{where}: {exc}")
            key, url = arguments.get("api_key_env"), arguments.get("url")
            # Variables such as QDRANT_URL name the host that the key belongs to.
            hosts = next((option.variables for option in options if option.name == "url"), ())
            if isinstance(key, str) and isinstance(url, str) and self._leaves_own_network(url, key, hosts):
                message = _leak_message(key, _host(url), hosts[0] if hosts else "")
                self.problems.add(node.key_lines.get("url", node.line), f"{where}.url {message}")
        for part in parts.values():
            for name, message in part.problems() if isinstance(part, Options) else ():
                line = node.key_lines.get(name, node.line)
                self.problems.add(line, f"{where}{message if message.startswith('.') else ' ' + message}")
        return parts

    def _report_wrong_type(self, option: Option, node: YamlNode, name: str, hint: str = "") -> None:
        message = f"{name} is {_show(node.value)}; it must be {option.type_in_words()}.{hint}"
        self.problems.add(node.line, message)

    def _text(self, option: Option, node: YamlNode, name: str) -> str | None:
        value = node.value
        if not isinstance(value, str):
            hint = "" if isinstance(value, (dict, list)) else " Put it in quotes if it is meant as text."
            self._report_wrong_type(option, node, name, hint)
            return None
        if not value.strip():
            self.problems.add(node.line, f"{name} is empty; it must be {TYPE_NAMES[option.kind]}.")
            return None
        allowed = option.allowed()
        if allowed and value not in allowed:
            advice = f" {option.advice(value)}" if option.advice else ""
            self.problems.add(node.line, f"{name} is {value!r}. {did_you_mean(value, allowed)}{advice}")
            return None
        return value

    def _variable(self, option: Option, node: YamlNode, name: str) -> str | None:
        """Return the name of an environment variable. Any other value may be a secret, so it is never shown."""
        value = node.value
        if not isinstance(value, str) or not _VARIABLE_NAME.fullmatch(value):
            kind = TYPE_NAMES[option.kind]
            self.problems.add(node.line, f"{name} must be {kind}; the secret itself stays out of the file.")
            return None
        if not environment.is_allowed_variable(value, option.variables):
            message = environment.forbidden_variable_message(value, option.variables)
            self.problems.add(node.line, f"{name} is {message}.")
            return None
        return value

    def _address(self, option: Option, node: YamlNode, name: str) -> str | None:
        """Return an address with its variables expanded. Their values leave the machine, so each must be allowed."""
        text = self._text(option, node, name)
        if text is None:
            return None
        if _PASSWORD.search(environment.REFERENCE.sub("", text)):
            self.problems.add(node.line, f"{name} contains a password. Keep it out of the file: write ${{VARIABLE}}.")
            return None
        for variable in environment.REFERENCE.findall(text):
            if not environment.is_allowed_variable(variable, option.variables):
                message = f"uses {environment.forbidden_variable_message(variable, option.variables)}."
            elif self._leaves_own_network(text, variable, ("PGHOST",)):
                message = _leak_message(variable, _host(text), "PGHOST")
            else:
                continue
            self.problems.add(node.line, f"{name} {message}")
            return None
        return self._expand(text, node, name)

    def _leaves_own_network(self, address: str, variable: str, host_variables: Sequence[str]) -> bool:
        """Whether a secret would be sent to a public host that is named only in the file."""
        host = _host(address)
        own_hosts = [os.environ.get(name, "") for name in host_variables]
        return (
            "$" not in host
            and is_public_name(host)
            and host not in [_host(own) if "://" in own else own for own in own_hosts]
            and not environment.is_allowed_variable(variable)
        )

    def _path(self, option: Option, node: YamlNode, name: str) -> str | None:
        """Return a path, resolved against the file's folder; some stores accept an address instead."""
        text = self._text(option, node, name)
        if text is None or _is_address(text):
            return None if text is None else self._address(option, node, name)
        expanded = self._expand(text, node, name)
        if expanded is None or not self.expand:
            return expanded
        if _is_address(expanded):
            return self._address(option, node, name)
        path = self.folder / Path(expanded).expanduser()
        # Messages show the text as written: the value of a variable may be secret.
        if "\0" in expanded:
            message = f"{name} contains a NUL character, which is not allowed in a path."
        elif option.must_exist and not path.exists():
            message = f"{name}: {text} does not exist (looked in {self.folder}). {option.help}"
        elif option.kind == "key file" and not environment.is_allowed_key_file(path, self.folder):
            rule = "and a pipeline file must not send arbitrary files to a server"
            advice = "Put the key next to the pipeline file, or allow its folder"
            command = f"export {environment.ALLOWED_KEY_FILES}=…"
            message = f"{name}: {text} is outside {self.folder}, {rule}. {advice}: {command}"
        else:
            return str(path)
        self.problems.add(node.line, message)
        return None

    def _expand(self, text: str, node: YamlNode, name: str) -> str | None:
        if not self.expand:
            return text
        for variable in environment.REFERENCE.findall(text):
            if not os.environ.get(variable):
                self.problems.add(node.line, f"{name} uses ${{{variable}}}, which is not set. Run: export {variable}=…")
                return None
        return environment.REFERENCE.sub(lambda match: os.environ[match[1]], text)

    def _plain_value(self, option: Option, node: YamlNode, name: str) -> object:
        """Return a number, a flag, a list of texts or a mapping, without invalid items."""
        value = node.plain()
        if option.kind == "texts" and isinstance(value, (str, list)):
            # A single text is treated as a list of one.
            items = [node] if isinstance(value, str) else node.value
            item_option = replace(option, kind="text")
            texts = [self._text(item_option, item, f"{name}[{i}]") for i, item in enumerate(items)]
            return tuple(text for text in texts if text is not None)
        problems = list(find_problems(value, data_type(option)))
        for problem in problems:
            # A value inside a mapping has its own line and name.
            inner = node.value[problem.path[0]] if problem.path else node
            expected = replace(option, kind="number") if problem.path else option
            self._report_wrong_type(expected, inner, problem.name(name))
        if not problems:
            return value
        invalid = {problem.path[0] for problem in problems if problem.path}
        if not isinstance(value, dict) or not all(problem.path for problem in problems):
            return None
        return {key: item for key, item in value.items() if key not in invalid}


def _host(address: str) -> str:
    """Return the host of an address whose password may be a reference such as ${PGPASSWORD}."""
    rest = address.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return rest[1:].partition("]")[0] if rest.startswith("[") else rest.partition(":")[0]


def _leak_message(variable: str, host: str, host_variable: str) -> str:
    host_command = f"export {host_variable}=… with this host, or " if host_variable else ""
    commands = f"{host_command}export {environment.ALLOWED_VARIABLES}={variable}"
    return f"would send {variable} to {host}. If this is intended, allow it outside the file: {commands}"


def _is_address(text: str) -> bool:
    return "://" in text or text.startswith(("//", "\\\\"))


def _show(value: object) -> str:
    """Return a value as written in the file, shortened."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _plugins_with(chooser: Option | None, name: str) -> list[str]:
    """Return the plugins that have an option with this name."""
    plugins: list[str] = []
    if chooser is None:
        return plugins
    for plugin in chooser.allowed():
        with suppress(ResiftError):
            declared = options_class(load_plugin(chooser.plugins, plugin))
            if declared is not None and any(option.name == name for option in declared_options(declared)):
                plugins.append(plugin)
    return plugins
