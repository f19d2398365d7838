"""Write the pages of docs/reference from the code: `python -m tools.build_reference`.

`--check` writes nothing and says which page is out of date. The page of configuration keys is made by
`resift config reference`.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin

from tools.build_http import environment_page, http_page

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "resift"
PAGES = ROOT / "docs" / "reference"

SECTIONS = {
    "Main entry points": ["resift"],
    "Values": ["resift.types", "resift.deadline", "resift.external.candidates"],
    "Roles": ["resift.protocols"],
    "Plugins": ["resift.plugins", "resift.validation"],
    "Fusion": ["resift.ranking.fusion"],
    "Gate": ["resift.ranking.gate"],
    "Guard and shape": ["resift.ranking.shape"],
    "Resilience": ["resift.resilience"],
    "Rerankers": [
        "resift.rerankers.rescore",
        "resift.rerankers.rescore",
        "resift.rerankers.cross_encoder",
        "resift.rerankers.late_interaction",
        "resift.rerankers.cross_encoder",
        "resift.rerankers.cascade",
        "resift.rerankers.semantic_bm25",
        "resift.rerankers.score_cache",
        "resift.rerankers.score_cache",
        "resift.rerankers.hosted",
        "resift.rerankers.llm",
    ],
    "Models": ["resift.models", "resift.models.embedder"],
    "Stores": ["resift.stores"],
    "Indexing": ["resift.ingest.indexing", "resift.ingest.chunking"],
    "Retrieval": ["resift.pipeline"],
    "Integrations": ["resift.integrations.external_store", "resift.integrations.txtai"],
    "Configuration": ["resift.config"],
    "Agent": ["resift.agent"],
    "Evaluation": [
        "resift.evaluation.readers",
        "resift.evaluation.measures",
        "resift.evaluation.measures",
        "resift.evaluation.runner",
        "resift.evaluation.evaluated_systems",
        "resift.evaluation.recording",
        "resift.evaluation.recording",
        "resift.evaluation.tuning",
        "resift.evaluation.html_report",
    ],
    "Telemetry": ["resift.events", "resift.telemetry"],
    "Explain": ["resift.explain"],
    "Sync edge": ["resift._internal.sync"],
    "Testing": ["resift.testing"],
}

MADE = "`python -m tools.build_reference` writes this page from the code, and a test compares the two.\n"


def main() -> int:
    """Write the pages, or with --check compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a page is stale")
    args = parser.parse_args()
    made = pages()
    stale = [name for name, text in made.items() if not _same(PAGES / name, text)]
    if args.check:
        sys.stdout.write(f"out of date: {', '.join(stale)}\n" if stale else "up to date\n")
        return int(bool(stale))
    PAGES.mkdir(exist_ok=True)
    for name in stale:
        (PAGES / name).write_text(made[name], encoding="utf-8")
    sys.stdout.write(f"wrote {', '.join(stale)}\n" if stale else "nothing changed\n")
    return 0


def pages() -> dict[str, str]:
    """Return every page by its file name."""
    return {
        "api.md": api_page(),
        "cli.md": cli_page(),
        "http.md": http_page(MADE),
        "environment.md": environment_page(MADE),
        "events.md": events_page(),
        "errors.md": errors_page(),
    }


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def api_page() -> str:
    """Return all public names: signature and first paragraph."""
    parts = ["# Python reference\n", MADE, "Errors and events have separate pages: [errors](errors.md), "]
    parts[-1] += "[events](events.md). Everything else is private and may change.\n"
    shown: dict[int, str] = {}
    for title, modules in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [_module(importlib.import_module(name), shown) for name in modules]
    return "\n".join(parts)


def _module(module: ModuleType, shown: dict[int, str]) -> str:
    """Return one module; what an earlier one offers too is only named."""
    lines = [f"### `{module.__name__}`\n", _first_paragraph(module.__doc__) + "\n"]
    for name, thing in public_names(module):
        earlier = shown.get(id(thing)) if callable(thing) else None
        lines.append(f"**`{name}`** · see `{earlier}`\n" if earlier else _entry(module.__name__, name, thing))
        shown.setdefault(id(thing), module.__name__)
    return "\n".join(lines)


def public_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield what a module offers: its `__all__`, or the public classes and functions that it defines."""
    declared = getattr(module, "__all__", None)
    if declared is not None:
        names = list(declared)
    else:
        own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
        names = [name for name in own if not name.startswith("_") and _documented(vars(module)[name])]
    for name in names:
        thing = getattr(module, name)
        if not (inspect.isclass(thing) and issubclass(thing, Exception)):
            yield name, thing


def _documented(thing: Any) -> bool:
    return inspect.isclass(thing) or inspect.isfunction(thing)


def _entry(module: str, name: str, thing: Any) -> str:
    if thing is Any or get_origin(thing) is not None:  # a type alias: its doc would be that of dict or Mapping
        written = repr(thing).replace("typing.", "").replace("collections.abc.", "")
        return f"**`{name}`** · `{written}`\n"
    if not (inspect.isclass(thing) or callable(thing)):
        return f"**`{name}`** · {type(thing).__name__}\n"
    home = getattr(thing, "__module__", module)
    where = "" if module != "resift" or home == module else f" · from `{home}`"
    lines = [f"**`{_called(name, thing)}`**{where}\n", _first_paragraph(_own_doc(thing)) + "\n"]
    if inspect.isclass(thing):
        methods = [f"- `{_called(called, method)}` {_first_line(doc)}" for called, method, doc in _methods(thing)]
        lines += ["\n".join(methods) + "\n"] if methods else []
    return "\n".join(line for line in lines if line.strip())


def _methods(cls: type) -> Iterator[tuple[str, Any, str]]:
    """Yield public methods and properties of a class that say what they do; those of stores also if inherited."""
    members = dict(vars(cls))
    for base in cls.__mro__[1:]:
        if base.__module__.startswith("resift.stores."):
            members = {**members, **{name: member for name, member in vars(base).items() if name not in members}}
    for name, member in members.items():
        if name.startswith("_") and name != "__call__":
            continue
        plain = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        doc = inspect.getdoc(plain) if isinstance(plain, property) or inspect.isfunction(plain) else None
        if doc:
            yield name, plain, doc


def _called(name: str, thing: Any) -> str:
    """Return the call as one would write it, with defaults, without annotations of `self`."""
    if isinstance(thing, property) or getattr(thing, "_is_protocol", False):
        return name
    if isinstance(thing, enum.EnumType):  # its signature differs between Python versions
        return f"{name}(value)"
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    kept = [one for one in signature.parameters.values() if one.name not in ("self", "cls", "_")]
    prefix = "await " if inspect.iscoroutinefunction(thing) else ""
    return f"{prefix}{name}({_parameters(kept)})"


def _parameters(parameters: list[inspect.Parameter]) -> str:
    written: list[str] = []
    starred = False
    for one in parameters:
        if one.kind is one.VAR_POSITIONAL:
            starred = True
        if one.kind is one.KEYWORD_ONLY and not starred:
            written.append("*")
            starred = True
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        written.append(stars + one.name + ("" if one.default is one.empty else f"={_value(one.default)}"))
    return ", ".join(written)


def _value(default: Any) -> str:
    """Return a default as source would have it; objects by their type, so that pages stay the same."""
    if callable(default) and hasattr(default, "__name__"):
        return str(default.__name__)
    if default is None or default == frozenset() or isinstance(default, (bool, int, float, str, tuple)):
        text = repr(default)
        return text if len(text) <= 60 and " at 0x" not in text else "…"
    hidden = type(default).__module__ in ("builtins", "dataclasses")
    return "…" if hidden else f"{type(default).__name__}(…)"


def _own_doc(thing: Any) -> str:
    """Return the docstring unless it is the one that dataclasses write themselves."""
    doc = inspect.getdoc(thing) or ""
    name = getattr(thing, "__name__", "")
    return "" if dataclasses.is_dataclass(thing) and doc.startswith(f"{name}(") else doc


def _first_paragraph(doc: str | None) -> str:
    return " ".join(inspect.cleandoc(doc or "").split("\n\n")[0].split())


def _first_line(doc: str | None) -> str:
    return inspect.cleandoc(doc or "").split("\n")[0]


def cli_page() -> str:
    """Return the help of every command, as a terminal of 100 columns shows it."""
    from resift.cli.main import build_parser

    os.environ["COLUMNS"], before = "100", os.environ.get("COLUMNS")
    try:
        parts = ["# Command line reference\n", MADE]
        for words, parser in _commands(build_parser()):
            shown = parser.format_help().rstrip()
            parts.append(f"## `{' '.join(words)}`\n\n```text\n{shown}\n```\n")
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return "\n".join(parts)


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    yield parser.prog.split(), parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in dict.fromkeys(action.choices.values()):
                yield from _commands(sub)


def events_page() -> str:
    """Return every event: name, when, fields."""
    from resift.events import Event

    for path in sorted(SOURCE.rglob("*.py")):
        if re.search(r"^class \w+\((Event|Scored)\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            importlib.import_module(_dotted(path))
    lines = ["# Events\n", MADE]
    lines.append(
        "Pass `sink=` to a pipeline, tiers, a gate, a cache: anything that takes an event. Events are frozen "
        "and hold no query, no document and no key. How to use them: "
        "[Telemetry](../guides/run/telemetry.md).\n"
    )
    events = [event for event in _below(Event) if event.__module__.startswith("resift.") and event.name != Event.name]
    for event in sorted(events, key=lambda event: event.name):
        lines.append(f"## `{event.name}`\n\n{_first_paragraph(event.__doc__)} `{event.__module__}.{event.__name__}`\n")
        rows = [f"| `{one.name}` | `{_type(one.type)}` |" for one in dataclasses.fields(event)]
        lines.append("\n".join(["| field | type |", "|---|---|", *rows]) + "\n")
    return "\n".join(lines)


def errors_page() -> str:
    """Return the tree of errors and what each says."""
    from resift import errors

    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    lines = ["# Errors\n", MADE, "```text", inspect.cleandoc(tree), "```\n"]
    lines.append(
        "`transient` says whether the same call may work later; breakers and tiers read it. Messages say "
        "what happened, what is allowed and what to do, and hold no query, no document and no key.\n"
    )
    lines += ["| error | also a | transient | means |", "|---|---|---|---|"]
    for error in [errors.ResiftError, *_below(errors.ResiftError)]:
        if error.__module__ == errors.__name__:
            other = [base.__name__ for base in error.__bases__ if not issubclass(base, errors.ResiftError)]
            also = ", ".join(f"`{name}`" for name in other if name != "Exception")
            means = _first_paragraph(error.__doc__)
            lines.append(f"| `{error.__name__}` | {also} | {_transient(error)} | {means} |")
    return "\n".join(lines) + "\n"


def _transient(error: Any) -> str:
    if "transient" in inspect.signature(error.__init__).parameters:
        return "as told"
    return "yes" if error.transient is True else "no"


def _below(cls: type) -> Iterator[Any]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _below(sub)


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return text.replace("|", "or")


def _dotted(path: Path) -> str:
    return ".".join(["resift", *path.relative_to(SOURCE).with_suffix("").parts])


if __name__ == "__main__":
    sys.exit(main())
