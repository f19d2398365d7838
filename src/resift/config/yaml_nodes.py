"""Parse YAML text, or a dict, into nodes with line numbers. `settings` checks them against declared options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from resift.errors import ConfigError
from resift.types import JsonValue

# Limits for files from untrusted sources.
MAX_BYTES, MAX_NODES, MAX_DEPTH = 262_144, 20_000, 30

_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(_TAG + kind for kind in ["map", "seq", "str", "int", "float", "bool", "null", "timestamp"])


@dataclass(slots=True)
class YamlNode:
    """A value and the line it starts on; children of mappings and lists are nodes."""

    value: JsonValue
    line: int | None = None
    key_lines: dict[str, int] = field(default_factory=dict)

    def get(self, key: str) -> YamlNode | None:
        """Return the child under a key; None if it is missing or null."""
        child: YamlNode | None = self.value.get(key) if isinstance(self.value, dict) else None
        return None if child is None or child.value is None else child

    def plain(self) -> JsonValue:
        """Return plain data, without line numbers."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        return [child.plain() for child in self.value] if isinstance(self.value, list) else self.value


def read_file(path: Path) -> YamlNode:
    """Read a YAML file; raise ConfigError with file and line unless it is plain YAML."""
    name = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise ConfigError(f"Cannot read the file: {exc.strerror or exc}.", file=name) from exc
    if len(data) > MAX_BYTES:
        raise ConfigError(f"The file is larger than {MAX_BYTES // 1024} KiB; a pipeline needs far less.", file=name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError("The file is not UTF-8; save it as UTF-8.", file=name, line=line) from exc
    return read_text(text, file=name)


def read_text(text: str, *, file: str | None = None) -> YamlNode:
    """Read YAML text."""
    try:
        # Composing instead of loading keeps line numbers and never constructs an object from a tag.
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise ConfigError("The file is empty; start with `stores:`.", file=file, line=1)
        return _NodeReader(file).read(root)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        reason = " ".join(part for part in (exc.context, exc.problem) if part)
        raise ConfigError(f"Not valid YAML: {reason}.", file=file, line=mark.line + 1 if mark else None) from exc
    except yaml.YAMLError as exc:
        raise ConfigError(f"Not valid YAML: {str(exc).splitlines()[0]}.", file=file) from exc
    except RecursionError as exc:
        raise ConfigError("Not a pipeline: nested far too deeply.", file=file) from exc
    except ConfigError:
        raise
    except ValueError as exc:
        # Python rejects some values, such as an integer with thousands of digits or the 31st of February.
        raise ConfigError("Not valid YAML: it contains an impossible number or date.", file=file) from exc


def from_plain(value: object, *, depth: int = 0) -> YamlNode:
    """Return nodes for a dict from Python or JSON; they have no line numbers."""
    if depth > MAX_DEPTH:
        raise ConfigError(f"Nested more than {MAX_DEPTH} levels deep; a pipeline needs far less.")
    if isinstance(value, Mapping):
        return YamlNode({str(key): from_plain(child, depth=depth + 1) for key, child in value.items()})
    if isinstance(value, (list, tuple)):
        return YamlNode([from_plain(child, depth=depth + 1) for child in value])
    return YamlNode(value)


class _NodeReader:
    """Converts PyYAML nodes and counts them, because aliases can multiply without limit."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self.nodes = 0
        self.scalars = yaml.constructor.SafeConstructor()

    def read(self, node: yaml.Node, depth: int = 0) -> YamlNode:
        line = node.start_mark.line + 1
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise self._error("Too large: the file has too many nodes or levels, possibly because of aliases.", line)
        if node.tag not in _PLAIN_TAGS:
            raise self._error(f"The tag {node.tag!r} is not allowed; write plain values only.", line)
        if isinstance(node, yaml.MappingNode):
            mapping = YamlNode({}, line)
            for key_node, value_node in node.value:
                key_line = key_node.start_mark.line + 1
                if key_node.tag == f"{_TAG}merge":
                    raise self._error("Merge keys (<<) are not supported; write the keys out.", key_line)
                if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != f"{_TAG}str":
                    raise self._error("A key must be text; put it in quotes.", key_line)
                key = str(key_node.value)
                if key in mapping.value:
                    first = mapping.key_lines[key]
                    raise self._error(f"The key {key!r} occurs twice, first in line {first}; keep one.", key_line)
                mapping.key_lines[key] = key_line
                mapping.value[key] = self.read(value_node, depth + 1)
            return mapping
        if isinstance(node, yaml.SequenceNode):
            return YamlNode([self.read(child, depth + 1) for child in node.value], line)
        return YamlNode(self.scalars.construct_object(node), line)

    def _error(self, message: str, line: int) -> ConfigError:
        return ConfigError(message, file=self.file, line=line)
