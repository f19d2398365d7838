"""The reference page of all keys, and the default pipeline as a file, both from the declarations.

`python -m resift.config.reference > PAGE` writes the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence

from resift.config.sections import FusionSection, GuardSection, PipelineFile
from resift.pipeline.defaults import FETCH
from resift.plugins import load_plugin, plugin_package
from resift.validation import DEFAULT_K, Option, declared_options, option_values, options_class
from resift.validation.options import TYPE_NAMES

_INTRODUCTION = """# Configuration reference

All keys of a pipeline file. This page is generated from the declarations that check the file:
`python -m resift.config.reference`. How to write one: [Configuration](../guides/run/pipeline-files.md).
"""


def reference_page(*, packages: Sequence[str] | None = ("resift",)) -> str:
    """Return the page as Markdown, with the plugins of these packages; None means all installed ones."""
    about = (PipelineFile.__doc__ or "").strip()
    return _INTRODUCTION + "".join(_sections(PipelineFile, "", about, packages)) + "\n"


def default_file(store: str = "docs.db") -> str:
    """Return the default pipeline on an index as a commented file; every value is the effective one."""
    from resift.rerankers.cross_encoder import DEFAULT_MODEL, PIPELINE_FIRST_PASS, PIPELINE_MAX_WINDOWS

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

rerank:                     # the rerank depth follows the fused scores; `depth: 20` fixes it
  kind: cross-encoder
  model: {DEFAULT_MODEL}
  max_windows: {PIPELINE_MAX_WINDOWS}            # maximum number of windows of a long text that are scored
  first_pass_windows: {PIPELINE_FIRST_PASS}     # scored first; the others only if one of these is relevant

guard:
  blend: {str(guard.blend).lower()}               # the final order blends first-stage and reranker scores
  do_no_harm: {str(guard.do_no_harm).lower()}          # a strong first-stage hit stays in the results

k: {DEFAULT_K}                       # hits that a search returns
# deadline_s: 2             # limit for a whole search, in seconds; none by default
"""


def _sections(
    declared: type, name: str, about: str, packages: Sequence[str] | None, base: object = None
) -> Iterator[str]:
    title = f"`{name}`" if name else "The file"
    options = declared_options(declared)
    defaults = {} if base is None else option_values(base)
    yield f"\n## {title}\n\n{about}\n\n{_table(options, packages, defaults)}"
    for option in options:
        # Plugins with the same options share a table.
        tables: dict[str, list[str]] = {}
        for plugin in _plugin_names(option, packages):
            own = options_class(load_plugin(option.plugins, plugin))
            if own is not None and declared_options(own):
                tables.setdefault(_table(declared_options(own), packages), []).append(f"`{plugin}`")
        for table, plugins in tables.items():
            yield f"\n\nWith {option.name} {', '.join(plugins)}, also:\n\n{table}"
    yield "\n"
    for option in options:
        if option.nested is not None:
            inner = f"{name}.{option.name}".lstrip(".")
            yield from _sections(option.nested, inner, option.help, packages, option.defaults_from)


def _plugin_names(option: Option, packages: Sequence[str] | None) -> list[str]:
    names = option.allowed() if option.plugins else []
    return [name for name in names if packages is None or plugin_package(option.plugins, name) in packages]


def _table(
    options: Sequence[Option], packages: Sequence[str] | None, defaults: Mapping[str, object] | None = None
) -> str:
    rows = []
    for option in options:
        kind = TYPE_NAMES[option.kind] + (f", {option.bounds()}" if option.bounds() else "")
        choices = _plugin_names(option, packages) if option.plugins else option.allowed()
        if choices:
            prefix = "some of" if option.kind == "texts" else "one of"
            kind = f"{prefix} {', '.join(f'`{choice}`' for choice in choices)}"
        default = _show_default(option, (defaults or {}).get(option.name, option.default))
        rows.append(f"| `{option.name}` | {kind} | {default} | {option.help} |")
    return "\n".join(["| key | type | default | description |", "|---|---|---|---|", *rows])


def _show_default(option: Option, value: object) -> str:
    if option.required:
        return "**required**"
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, Mapping):
        value = ", ".join(f"{key}: {item}" for key, item in value.items())
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    sys.stdout.write(reference_page(packages=None if "--all" in sys.argv else ("resift",)))
