"""YAML text, or a dict, as a tree that knows its lines. No meaning yet: `reading` gives it one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from resift.errors import ConfigError

# A file of a stranger must not take memory or time before it is understood.
MAX_BYTES = 262_144
MAX_NODES = 20_000
MAX_DEPTH = 30

_PLAIN_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp")
)


@dataclass(slots=True)
class Tree:
    """A value and the line it starts on; the children of mappings and lists are trees again."""

    value: Any
    line: int | None = None
    key_lines: dict[str, int] = field(default_factory=dict)


def read_file(path: Path) -> Tree:
    """Read a YAML file; raises ConfigError with file and line for anything that is no plain YAML."""
    name = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise ConfigError(f"Cannot read the file: {exc.strerror or exc}.", file=name) from exc
    if len(data) > MAX_BYTES:
        raise ConfigError(
            f"The file is larger than {MAX_BYTES // 1024} KiB; a pipeline needs far less.", file=name
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError("The file is not UTF-8; save it as UTF-8.", file=name, line=line) from exc
    return read_text(text, file=name)


def read_text(text: str, *, file: str | None = None) -> Tree:
    """Read YAML text."""
    try:
        # Composed and not loaded: nodes know their lines, and no object is ever made of a tag.
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise ConfigError("The file is empty; start with `stores:`.", file=file, line=1)
        return _TreeBuilder(file).build(root)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        reason = " ".join(part for part in (exc.context, exc.problem) if part)
        raise ConfigError(
            f"Not valid YAML: {reason}.", file=file, line=mark.line + 1 if mark else None
        ) from exc
    except yaml.YAMLError as exc:
        raise ConfigError(f"Not valid YAML: {str(exc).splitlines()[0]}.", file=file) from exc
    except RecursionError as exc:
        raise ConfigError("Not a pipeline: nested far too deeply.", file=file) from exc
    except ValueError as exc:
        # Python's own limits, such as an integer of thousands of digits or the 31st of February.
        raise (
            exc
            if isinstance(exc, ConfigError)
            else ConfigError("Not valid YAML: a number or date is impossible.", file=file)
        ) from exc


def from_plain(value: object, *, depth: int = 0) -> Tree:
    """Make a tree of a dict from Python or JSON; it has no lines."""
    if depth > MAX_DEPTH:
        raise ConfigError(f"Nested more than {MAX_DEPTH} deep; a pipeline needs far less.")
    if isinstance(value, Mapping):
        return Tree({str(key): from_plain(each, depth=depth + 1) for key, each in value.items()})
    if isinstance(value, (list, tuple)):
        return Tree([from_plain(each, depth=depth + 1) for each in value])
    return Tree(value)


class _TreeBuilder:
    """Turns composed nodes into a tree; counts, so that aliases cannot multiply without end."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self.nodes = 0
        self.scalars = yaml.constructor.SafeConstructor()

    def build(self, node: yaml.Node, depth: int = 0) -> Tree:
        line = node.start_mark.line + 1
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise self._error("Too large: aliases or nesting repeat without end.", line)
        if node.tag == "tag:yaml.org,2002:merge" or node.tag not in _PLAIN_TAGS:
            raise self._error(f"The tag {node.tag!r} is not allowed; write plain values only.", line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, line, depth)
        if isinstance(node, yaml.SequenceNode):
            return Tree([self.build(child, depth + 1) for child in node.value], line)
        return Tree(self.scalars.construct_object(node), line)

    def _mapping(self, node: yaml.MappingNode, line: int, depth: int) -> Tree:
        tree = Tree({}, line)
        for key_node, value_node in node.value:
            at = key_node.start_mark.line + 1
            key = self._key(key_node, at)
            if key in tree.value:
                raise self._error(
                    f"The key {key!r} is here twice, first in line {tree.key_lines[key]}; keep one.", at
                )
            tree.key_lines[key] = at
            tree.value[key] = self.build(value_node, depth + 1)
        return tree

    def _key(self, node: yaml.Node, line: int) -> str:
        if node.tag == "tag:yaml.org,2002:merge":
            raise self._error("Merge keys (<<) are not supported; write the keys out.", line)
        if not isinstance(node, yaml.ScalarNode) or node.tag != "tag:yaml.org,2002:str":
            raise self._error("A key must be text; put it in quotes.", line)
        return str(node.value)

    def _error(self, message: str, line: int) -> ConfigError:
        return ConfigError(message, file=self.file, line=line)
