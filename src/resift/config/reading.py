"""A tree and a declaration in, checked settings out. Each mistake has its line; none stops the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from resift.config.problems import Problems
from resift.config.settings import Settings
from resift.config.tree import Tree
from resift.config.values import ValueReader, shown
from resift.errors import InputError, ResiftError, did_you_mean
from resift.plugins import load_plugin
from resift.types import JsonMapping, JsonObject
from resift.validation import Option, Options, declared_options, option_values, options_class
from resift.validation.options import build_options, included_options, warn_renamed

# Files are committed and shared; a key in one is a leak, whatever it was meant for.
_SECRETS = frozenset({"api_key", "apikey", "key", "token", "password", "secret"})

WHOLE = "The file"

# They stand for a plugin that does not exist, and for one that does not load.
_UNKNOWN, _BROKEN = object(), object()


class Reader:
    """Checks trees against declared options; paths are relative to `folder`.

    With `expand=False` paths and addresses stay as written, for showing them.
    """

    def __init__(self, problems: Problems, *, folder: Path, expand: bool = True) -> None:
        self.problems = problems
        self._values = ValueReader(problems, folder=folder, expand=expand)

    def section(self, declared: type, tree: Tree, where: str, *, base: object = None) -> Settings | None:
        """Return the settings of a mapping, or None where it is no mapping at all."""
        if not isinstance(tree.value, dict):
            self.problems.add(tree.line, f"{where} is {shown(tree.value)}; it must be a mapping of keys.")
            return None
        options = {each.name: each for each in declared_options(declared)}
        chooser = next((each for each in options.values() if each.plugins), None)
        plugin = None if chooser is None else self._plugin(chooser, tree)
        own = options_class(plugin)
        if own is not None:
            # The section's own keys come first: a plugin cannot change what `name` or `k` means.
            options = {**{each.name: each for each in declared_options(own)}, **options}
        self._rename_old_keys(options, tree, where)
        # Unknown keys first, then values: a misspelt key explains the "needs the key" that follows it.
        for name in tree.value:
            if name not in options and not (chooser is not None and _excused(plugin, chooser, name)):
                self._unknown(chooser, options, name, tree, where)
        started = {} if base is None else option_values(base)
        values = {name: self._value(each, tree, where, started) for name, each in options.items()}
        parts = self._instances(
            [declared, *included_options(declared), *([own] if own else [])], values, tree, where
        )
        settings = Settings(
            values,
            lines=tree.key_lines,
            line=tree.line,
            written=tree.value,
            parts=parts,
            plugin=plugin,
            options=None if own is None else parts.get(own),
        )
        self._refuse_declared(own, settings, where)
        return settings

    def _rename_old_keys(self, options: Mapping[str, Option], tree: Tree, where: str) -> None:
        """Move values under keys of earlier versions to the present keys, with a DeprecationWarning."""
        for option in options.values():
            for alias in option.aliases:
                if alias not in tree.value or alias in options:
                    continue
                line = tree.key_lines.pop(alias, None)
                if option.name in tree.value:
                    message = (
                        f"{where} has both {option.name!r} and its old name {alias!r}; keep {option.name!r}."
                    )
                    self.problems.add(line, message)
                    del tree.value[alias]
                    continue
                place = ":".join(str(part) for part in (self.problems.file, line) if part)
                warn_renamed(f"{place}: {alias}" if place else f"{where}.{alias}", option.name, stacklevel=2)
                tree.value[option.name] = tree.value.pop(alias)
                if line is not None:
                    tree.key_lines[option.name] = line

    def _plugin(self, chooser: Option, tree: Tree) -> Any:
        """Return the plugin that a section names; None where it names none."""
        given = tree.value.get(chooser.name)
        name = chooser.default if given is None or given.value is None else given.value
        if name is None:
            return None
        allowed = chooser.allowed()
        if not allowed:
            line = tree.key_lines.get(chooser.name, tree.line)
            self.problems.add(line, f"No installed package offers {name!r} in the group {chooser.plugins}.")
        if not isinstance(name, str) or name not in allowed:
            return _UNKNOWN
        try:
            return load_plugin(chooser.plugins, name)
        except ResiftError as exc:
            self.problems.add(tree.key_lines.get(chooser.name, tree.line), str(exc))
            return _BROKEN

    def _instances(
        self, declared: Sequence[type], values: JsonMapping, tree: Tree, where: str
    ) -> dict[type, object]:
        """Return the values as instances of what declares them; whatever they find wrong is noted."""
        found: dict[type, object] = {}
        for each in declared:
            if any(option.required and values[option.name] is None for option in declared_options(each)):
                continue  # noted already
            try:
                found[each] = build_options(each, _parts(each, values))
            except InputError as exc:
                self.problems.add(tree.line, f"{where}: {exc}")
        for part in found.values():
            for name, message in part.problems() if isinstance(part, Options) else ():
                line = tree.key_lines.get(name, tree.line)
                self.problems.add(line, f"{where}{message if message.startswith('.') else ' ' + message}")
        return found

    def _refuse_declared(self, own: type | None, settings: Settings, where: str) -> None:
        """Refuse a declared option under the free `options`: there nothing would check it."""
        declared = set() if own is None else {each.name for each in declared_options(own)}
        for name in settings.get("options") or ():
            if name in declared or name in _SECRETS:
                hint = (
                    "Keep it out of the file." if name in _SECRETS else f"Write {name!r} beside it instead."
                )
                self.problems.add(settings.line_of("options"), f"{where}.options holds {name!r}. {hint}")

    def _unknown(
        self, chooser: Option | None, options: Mapping[str, Option], name: str, tree: Tree, where: str
    ) -> None:
        line = tree.key_lines.get(name)
        others = [] if chooser is None else _plugins_with(chooser, name)
        if name in _SECRETS:
            self.problems.add(
                line, f"{where} holds a secret under {name!r}. Keep it out of the file: use api_key_env."
            )
        elif chooser is not None and others:
            kinds = f"{chooser.name} {', '.join(others)}"
            self.problems.add(line, f"{where} has no key {name!r}; that belongs to {kinds}.")
        else:
            self.problems.add(line, f"{where} has no key {name!r}. {did_you_mean(name, options)}")

    def _value(self, option: Option, tree: Tree, where: str, started: JsonMapping) -> Any:
        name = f"{where}.{option.name}" if where != WHOLE else option.name
        default = started.get(option.name, option.default)
        given = tree.value.get(option.name)
        if given is None or given.value is None:
            if option.required and option.name not in started:
                self.problems.add(tree.line, f"{where} needs the key {option.name!r}: {option.help}")
            return default
        if option.kind == "section":
            assert option.nested is not None  # noqa: S101 - narrows
            found: Any = self.section(option.nested, given, name, base=option.defaults_from)
        elif option.kind == "sections":
            found = self._listed(option, given, name)
        else:
            found = self._values.read(option, given, name)
        return default if found is None else found

    def _listed(self, option: Option, tree: Tree, name: str) -> list[Settings] | None:
        assert option.nested is not None  # noqa: S101 - narrows
        if not isinstance(tree.value, list):
            self._values.wrong(option, tree, name)
            return None
        if option.required and not tree.value:
            self.problems.add(tree.line, f"{name} is empty; it needs at least one entry.")
        found = [
            self.section(option.nested, item, _entry(name, at, item)) for at, item in enumerate(tree.value)
        ]
        return [settings for settings in found if settings is not None]


def _parts(declared: type, values: JsonMapping) -> JsonObject:
    """Return the values that a dataclass takes, with its nested sections as the dataclasses they declare."""
    found = {}
    for option in declared_options(declared):
        value = values[option.name]
        if option.nested is not None and isinstance(value, list):
            value = tuple(each.parts[option.nested] for each in value if option.nested in each.parts)
        elif option.nested is not None and isinstance(value, Settings):
            value = value.parts.get(option.nested)
        found[option.name] = value
    return found


def _excused(plugin: object, chooser: Option, name: str) -> bool:
    """Say whether a key may be right: nobody knows the keys of a plugin that is not there."""
    return plugin is _BROKEN or (plugin is _UNKNOWN and bool(_plugins_with(chooser, name)))


def _plugins_with(chooser: Option, name: str) -> list[str]:
    """Return the plugins that have an option of that name; one that does not load has none."""
    found = []
    for each in chooser.allowed():
        try:
            own = options_class(load_plugin(chooser.plugins, each))
        except ResiftError:
            continue
        if own is not None and any(option.name == name for option in declared_options(own)):
            found.append(each)
    return found


def _entry(name: str, at: int, tree: Tree) -> str:
    """Return what a list entry is called in messages: by its own name where it has one."""
    own = tree.value.get("name") if isinstance(tree.value, dict) else None
    return f"{name}[{own.value if own and isinstance(own.value, str) else at}]"
