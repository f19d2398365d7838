"""`resift config`: write the default pipeline file, check or show a file, print all keys."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from resift.cli.arguments import JSON, Command, Option
from resift.cli.terminal import count, print_json, print_note, print_table, print_text, style
from resift.errors import ConfigError, InputError, shell_path

if TYPE_CHECKING:
    from resift.config.settings import Settings

_FILE = Option("file FILE", "the pipeline file (YAML)")

CONFIG = Command(
    """\
examples:
  resift config init -o pipeline.yaml   the default pipeline as a commented file
  resift config check pipeline.yaml     all mistakes with their lines, or OK
  resift config show pipeline.yaml      the file with all defaults filled in
  resift config reference               all keys, as Markdown
""",
    actions={
        "check": ("find all mistakes in a file", (_FILE, JSON)),
        "show": ("print a file with all defaults", (_FILE, JSON)),
        "init": (
            "write the default pipeline as a file",
            (
                Option("--store FILE", "the index to search", str, "docs.db"),
                Option("-o --output FILE", "write here; never overwrites a file (default: stdout)"),
            ),
        ),
        "reference": ("print the reference of all keys as Markdown", ()),
    },
)


def run_config(args: argparse.Namespace) -> int:
    """Run one action; exit code 1 if the file has mistakes."""
    if args.action == "init":
        return _init(args)
    if args.action == "check":
        return _check(args)
    if args.action == "show":
        import yaml

        from resift.config import inspect_yaml

        settings, problems = inspect_yaml(args.file, expand=False)
        problems.raise_first()
        data = {} if settings is None else settings.plain()
        if args.json:
            return print_json(data)
        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
        return 0
    from resift.config.sections import reference_page

    sys.stdout.write(reference_page(packages=None))
    return 0


def _init(args: argparse.Namespace) -> int:
    from resift.config.sections import default_file

    # Paths in the file are relative to it, those on the command line to the current folder.
    folder = Path() if args.output is None else args.output.parent
    text = default_file(args.store if os.path.isabs(args.store) else os.path.relpath(args.store, folder))
    if args.output is None:
        sys.stdout.write(text)
        return 0
    try:
        with args.output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{args.output} exists and was not changed. Choose another file for -o.") from None
    print_text(f"Wrote {args.output}. Next: resift config check {shell_path(args.output)}")
    return 0


def _check(args: argparse.Namespace) -> int:
    from resift.config import inspect_yaml

    try:
        settings, problems = inspect_yaml(args.file)
        mistakes = problems.lines()
    except ConfigError as exc:
        settings, mistakes = None, [str(exc)]
    if mistakes or settings is None:
        if args.json:
            print_json({"ok": False, "mistakes": mistakes})
            return 1
        for line in mistakes:
            print_note(" ".join(line.split()))
        print_note(style(count(len(mistakes), "mistake"), "red", stream=sys.stderr))
        return 1
    rows = _summarize(settings)
    if args.json:
        summary = [{"part": part, "is": value} for part, value in rows]
        print_json({"ok": True, "mistakes": [], "summary": summary})
    else:
        print_text(f"{style('OK', 'green', 'bold')}  {args.file}\n")
        print_table(["part", "setting"], rows, wrap=True)
    return 0


def _summarize(settings: Settings) -> list[tuple[str, str]]:
    """Return (part, setting) rows."""
    from resift.config.build import unset_key_variables
    from resift.pipeline.defaults import FETCH
    from resift.pipeline.fan_out import OverFetch
    from resift.ranking.fusion.weighted import NAME as WEIGHTED

    rows: list[tuple[str, str]] = []
    for store in settings["stores"]:
        place = next((str(store[key]) for key in ("path", "url") if store.get(key)), "")
        place = place.removeprefix(f"{Path.cwd()}/")
        rows.append(("store", f"{store['name']} ({store['kind']}) {place}".rstrip()))
    fetch = FETCH if settings["fetch"] is None else settings["fetch"].part(OverFetch)
    rows.append(("fetch", f"{fetch(settings['k'])} hits from each store"))
    rows.append(("fusion", settings["fusion"]["method"]))
    rerank = settings["rerank"]
    if rerank is not None:
        scorers = rerank["tiers"] or [rerank]
        names = " > ".join(f"{each['kind']} {each.get('model') or ''}".strip() for each in scorers)
        adaptive = settings["fusion"]["method"] == WEIGHTED and not rerank["depth"]
        depth = "adaptive depth" if adaptive else f"the top {rerank['depth'] or 20}"
        rows.append(("rerank", f"{names}, {depth}"))
        unset = [name for each in scorers for name in unset_key_variables(each)]
        rows += [("note", f"{name} is not set: its tier will be skipped") for name in unset]
        guard = settings["guard"]
        rows.append(("blend", "on" if guard is None or guard["blend"] else "off"))
        rows.append(("guard", "on" if guard is None or guard["do_no_harm"] else "off"))
    rows += [(part, "on") for part in ("gate", "shape") if settings.get(part) is not None]
    rows.append(("k", str(settings["k"])))
    deadline_s = settings["deadline_s"]
    rows.append(("deadline", "none" if deadline_s is None else f"{deadline_s:g} s"))
    for store in settings["stores"] if settings["capabilities"] is not None else ():
        capability = f"db.{store['name']}:read"
        if capability not in settings["capabilities"]:
            rows.append(("note", f"{capability} is not granted: every search will be refused"))
    return rows
