"""`resift config`: write the default pipeline file, check a file, show what it means, print all keys."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from resift.cli.render import paint, print_json, print_note, print_text, table

_EXAMPLES = """examples:
  resift config init -o pipeline.yaml   the default pipeline as a commented file
  resift config check pipeline.yaml     every mistake with its line, or OK
  resift config show pipeline.yaml      the file with all defaults filled in
  resift config reference               every key there is, as Markdown
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in (
        ("check", "find every mistake in a file"),
        ("show", "print a file with all defaults"),
    ):
        sub = actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        sub.add_argument("file", type=Path, help="the pipeline file (YAML)")
        sub.add_argument("--json", action="store_true", help="write JSON, also on a terminal")
    init = actions.add_parser(
        "init",
        help="write the default pipeline as a file",
        description="Write the default pipeline as a commented file, to stdout or to -o FILE.",
    )
    init.add_argument(
        "--store", default="docs.db", metavar="FILE", help="the index to search (default: docs.db)"
    )
    init.add_argument("-o", "--output", type=Path, metavar="FILE", help="write here; never overwrites a file")
    actions.add_parser("reference", help="print the reference of all keys as Markdown")


def run(args: argparse.Namespace) -> int:
    """Run one subcommand; exit code 1 when the file has mistakes."""
    if args.action == "reference":
        from resift.config.reference import reference_page

        sys.stdout.write(reference_page())
        return 0
    if args.action == "init":
        return _init(args)
    return _check(args) if args.action == "check" else _show(args)


def _init(args: argparse.Namespace) -> int:
    from resift.config.reference import default_file
    from resift.errors import InputError, shell_path

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
        raise InputError(f"{args.output} exists and stays as it is. Choose another file for -o.") from None
    print_text(f"Wrote {args.output}. Next: resift config check {shell_path(args.output)}")
    return 0


def _check(args: argparse.Namespace) -> int:
    from resift.config import inspect_yaml
    from resift.errors import ConfigError

    try:
        settings, problems = inspect_yaml(args.file)
        mistakes = problems.lines()
    except ConfigError as exc:
        settings, mistakes = None, [str(exc)]
    if mistakes or settings is None:
        _tell_mistakes(mistakes, as_json=args.json)
        return 1
    summary = _summary(settings)
    if args.json:
        print_json(
            {"ok": True, "mistakes": [], "summary": [{"part": part, "is": value} for part, value in summary]}
        )
    else:
        print_text(f"{paint('OK', 'green', 'bold')}  {args.file}\n")
        print_text(table(["part", "setting"], summary, wrap=True))
    return 0


def _tell_mistakes(mistakes: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"ok": False, "mistakes": mistakes})
        return
    for line in mistakes:
        print_note(" ".join(line.split()))
    many = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    print_note(paint(many, "red", stream=sys.stderr))


def _summary(settings: Any) -> list[tuple[str, str]]:
    from resift.config.build import unset_key_variables
    from resift.pipeline.defaults import FETCH
    from resift.pipeline.over_fetch import OverFetch
    from resift.ranking.fusion.weighted import NAME as WEIGHTED

    rows = []
    for store in settings["stores"]:
        place = next((str(store[key]) for key in ("path", "url") if store.get(key)), "")
        place = place.removeprefix(f"{Path.cwd()}/")
        label = " ".join(part for part in (store["name"], f"({store['kind']})", place) if part)
        rows.append(("store", label))
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


def _show(args: argparse.Namespace) -> int:
    import yaml

    from resift.config import inspect_yaml

    settings, problems = inspect_yaml(args.file, expand=False)
    problems.raise_first()
    data = {} if settings is None else settings.plain()
    if args.json:
        print_json(data)
    else:
        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    return 0
