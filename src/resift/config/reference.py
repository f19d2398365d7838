"""The reference page of every key, and the default pipeline as a file, both from what is declared.

`python -m resift.config.reference > PAGE` writes the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence

from resift.config.sections import FusionSection, GuardSection, PipelineFile
from resift.pipeline.defaults import FETCH
from resift.plugins import load_plugin, package_of
from resift.validation import DEFAULT_K, Option, declared_options, option_values, options_class
from resift.validation.options import TYPE_NAMES

_HEAD = """# Configuration reference

Every key that a pipeline file may hold. This page is generated from the same declarations that check a file:
`python -m resift.config.reference`. How to write one: [Configuration](../configuration.md).
"""


def page(*, packages: Sequence[str] | None = ("resift",)) -> str:
    """Return the page as Markdown: with the plugins of these packages, with None of all installed ones."""
    return _HEAD + "".join(_sections(PipelineFile, "", (PipelineFile.__doc__ or "").strip(), packages)) + "\n"


def default_file(store: str = "docs.db") -> str:
    """Return the default pipeline on an index as a commented file; every value is the one that runs."""
    from resift.rerankers.cross_encoder import DEFAULT_MODEL, SKIM, WINDOWS

    guard = GuardSection()
    quoted = json.dumps(store, ensure_ascii=False)  # a JSON string is a YAML string
    return f"""\
# The default pipeline of Resift. A key that you remove keeps the value that it has here; without the section
# `rerank` nothing is reranked. Check the file with `resift config check FILE`, search with
# `resift search --pipeline FILE`. All keys: `resift config reference`.

stores:
  - name: docs
    kind: sqlite            # or lancedb, ladybug, memory, postgres, qdrant
    path: {quoted}  # an index of `resift index`, relative to this file

fetch:                      # hits from each store: factor * k, at least minimum, at most cap
  factor: {FETCH.factor}
  minimum: {FETCH.minimum}
  cap: {FETCH.cap}

fusion:
  method: {FusionSection().method}          # keyword and vector search are weighted by the texts

rerank:                     # how many hits are reranked follows the fused scores; `depth: 20` fixes it
  kind: cross-encoder
  model: {DEFAULT_MODEL}
  max_windows: {WINDOWS}            # windows of a long text that are scored at most
  skim: {SKIM}                   # windows that are scored first; the others only if one of these is relevant

guard:
  blend: {_yaml(guard.blend)}               # the final order blends first-stage and reranker scores
  do_no_harm: {_yaml(guard.do_no_harm)}          # a strong first-stage hit stays in the results

k: {DEFAULT_K}                       # hits that a search returns
# deadline_s: 2             # limit for a whole search, in seconds; none by default
"""


def _yaml(value: bool) -> str:
    return str(value).lower()


def _sections(
    declared: type, name: str, about: str, packages: Sequence[str] | None, base: object = None
) -> Iterator[str]:
    title = f"`{name}`" if name else "The file"
    started = {} if base is None else option_values(base)
    options = declared_options(declared)
    yield f"\n## {title}\n\n{about}\n\n{_table(options, started, packages)}"
    for each in options:
        for table, names in _plugins(each, packages):
            kinds = ", ".join(f"`{one}`" for one in names)
            yield f"\n\nWith {each.name} {kinds}, also:\n\n{table}"
    yield "\n"
    for each in options:
        if each.nested is not None:
            inner = f"{name}.{each.name}".lstrip(".")
            yield from _sections(each.nested, inner, each.help, packages, each.defaults_from)


def _plugins(chooser: Option, packages: Sequence[str] | None) -> list[tuple[str, list[str]]]:
    """Return the tables of the plugins' own options, each with the names that share it."""
    shared: dict[str, list[str]] = {}
    for name in _offered(chooser, packages):
        own = options_class(load_plugin(chooser.plugins, name))
        if own is not None and declared_options(own):
            shared.setdefault(_table(declared_options(own), {}, packages), []).append(name)
    return list(shared.items())


def _offered(chooser: Option, packages: Sequence[str] | None) -> list[str]:
    if not chooser.plugins:
        return []
    names = chooser.allowed()
    return [name for name in names if packages is None or package_of(chooser.plugins, name) in packages]


def _table(options: Sequence[Option], started: Mapping[str, object], packages: Sequence[str] | None) -> str:
    rows = "\n".join(_row(each, started.get(each.name, each.default), packages) for each in options)
    return f"| key | takes | default | what it does |\n|---|---|---|---|\n{rows}"


def _row(option: Option, default: object, packages: Sequence[str] | None) -> str:
    takes = TYPE_NAMES[option.kind] + (f", {option.bounds()}" if option.bounds() else "")
    choices = _offered(option, packages) if option.plugins else option.allowed()
    if choices:
        takes = ("some of " if option.kind == "texts" else "one of ") + ", ".join(
            f"`{choice}`" for choice in choices
        )
    return f"| `{option.name}` | {takes} | {_default(option, default)} | {option.help} |"


def _default(option: Option, value: object) -> str:
    if option.required:
        return "**required**"
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, Mapping):
        value = ", ".join(f"{key}: {each}" for key, each in value.items())
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    sys.stdout.write(page(packages=None if "--all" in sys.argv else ("resift",)))
