"""The reference page of every key, generated from the table: `python -m resift.config.reference > PAGE`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from resift.config.rooms.root import ROOT
from resift.config.schema import KIND_WORDS, Key, Section

_HEAD = """# Configuration reference

Every key that a pipeline file may hold. This page is generated from the same table that checks a file:
`python -m resift.config.reference`. How to write one: [Configuration](../configuration.md).
"""

_NOT_LISTED = frozenset({"stores.kind", "rerank.kind", "rerank.tiers.kind"})
"""Keys whose values depend on what is installed."""


def page() -> str:
    """Return the page as Markdown."""
    return _HEAD + "".join(_sections(ROOT)) + "\n"


def _sections(section: Section) -> Iterator[str]:
    title = f"`{section.name}`" if section.name else "The file"
    yield f"\n## {title}\n\n{section.about}\n\n{_table(section, section.keys)}"
    for keys, kinds in _kinds(section):
        named = ", ".join(f"`{kind}`" for kind in kinds)
        yield f"\n\nWith kind {named}, also:\n\n{_table(section, keys)}"
    yield "\n"
    for key in section.keys:
        if key.section is not None:
            yield from _sections(key.section)


def _kinds(section: Section) -> list[tuple[tuple[Key, ...], list[str]]]:
    """Return the extra keys and the kinds that share them."""
    shared: list[tuple[tuple[Key, ...], list[str]]] = []
    for kind, keys in section.by_kind.items():
        same = next((kinds for known, kinds in shared if known is keys), None)
        if same is None:
            shared.append((keys, [kind]))
        else:
            same.append(kind)
    return shared


def _table(section: Section, keys: tuple[Key, ...]) -> str:
    rows = "\n".join(_row(section, key) for key in keys)
    return f"| key | takes | default | what it does |\n|---|---|---|---|\n{rows}"


def _row(section: Section, key: Key) -> str:
    full = f"{section.name}.{key.name}"
    takes = KIND_WORDS[key.kind] + (f", {key.bounds()}" if key.bounds() else "")
    if full in _NOT_LISTED:
        takes = "a name, see `resift doctor`"
    elif key.choices:
        takes = "one of " + ", ".join(f"`{choice}`" for choice in key.allowed())
    default = "**required**" if key.required else "" if key.default is None else f"`{_shown(key.default)}`"
    return f"| `{key.name}` | {takes} | {default} | {key.about} |"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    sys.stdout.write(page())
