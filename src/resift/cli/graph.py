"""`resift graph`: build a knowledge pack, and say what is in one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from resift.types import JsonObject

if TYPE_CHECKING:
    from resift.agent.pack import PackInfo
    from resift.agent.pack_build import BuildReport

MAX_NAMED = 10
"""Paths that are named when they were not read; --json names all."""

EXAMPLES = """\
A pack holds articles, their sections with embeddings, and the links between them, in one file. Sources are
all files that `resift index` reads, PDF and Word included; a JSONL row ({"title", "text", "links"}) is an
article. Links are [[Title]], [[Title|words]], Markdown links and hrefs. A build that was stopped goes on when
started again; the pack appears when it is complete.

examples:
  resift graph build notes/ -o notes.lbug
  resift graph build wikipedia.jsonl -o wikipedia.lbug
  resift graph info notes.lbug
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift graph`."""
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="build a pack from a folder or a file")
    build.add_argument("source", type=Path, metavar="SOURCE", help="folder or file to read")
    build.add_argument("-o", "--output", type=Path, required=True, metavar="PACK", help="the pack to write")
    build.add_argument("--embedder", default=None, metavar="MODEL", help="embedding model of the pack")
    build.add_argument("--json", action="store_true", help="write the report as JSON")
    info = actions.add_parser("info", help="counts, embedder and the articles with most links to them")
    info.add_argument("pack", type=Path, metavar="PACK", help="the pack to look at")
    info.add_argument("--json", action="store_true", help="write the facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Build or describe a pack; exit code 1 if a file could not be read, after all others were."""
    return _build(args) if args.action == "build" else _info(args)


def _build(args: argparse.Namespace) -> int:
    from resift._internal.sync import run_sync
    from resift.agent.pack_build import build_pack
    from resift.cli.render import Progress, complain
    from resift.models.embedder import DEFAULT_EMBEDDER, Embedder

    embedder = Embedder(args.embedder or DEFAULT_EMBEDDER)
    with Progress("embedding sections") as meter:
        report = run_sync(build_pack(args.source, args.output, embedder=embedder, progress=meter.update))
    for problem in report.failed:
        complain(problem)
    _print_report(report, args)
    return 1 if report.failed else 0


def _print_report(report: BuildReport, args: argparse.Namespace) -> None:
    from resift.cli.render import print_json, print_text
    from resift.errors import shell_path

    if args.json:
        facts = {name: getattr(report, name) for name in ("articles", "sections", "links", "resumed")}
        lists = {"failed": list(report.failed), "not_read": list(report.not_read)}
        print_json({"pack": str(args.output), **facts, **lists})
        return
    again = f" ({report.resumed} articles were there from an earlier run)" if report.resumed else ""
    print_text(
        f"{args.output} holds {report.articles} articles, {report.sections} sections "
        f"and {report.links} links{again}."
    )
    if report.not_read:
        more = f" and {len(report.not_read) - MAX_NAMED} more" if len(report.not_read) > MAX_NAMED else ""
        print_text(f"Not read: {'; '.join(report.not_read[:MAX_NAMED])}{more}.")
    print_text(f'Next: resift ask "your question" --pack {shell_path(args.output)}')


def _info(args: argparse.Namespace) -> int:
    from resift.agent.pack import Pack
    from resift.cli.render import print_json

    pack = Pack.open(args.pack)
    try:
        info = pack.info()
    finally:
        pack.close()
    if args.json:
        print_json({"pack": str(args.pack), **_facts(info), "meta": dict(info.meta)})
    else:
        _print_facts(info)
    return 0


def _facts(info: PackInfo) -> JsonObject:
    names = ("articles", "sections", "links", "embedder", "dimension", "version")
    linked = [{"title": title, "links": count} for title, count in info.most_linked]
    return {**{name: getattr(info, name) for name in names}, "most_linked": linked}


def _print_facts(info: PackInfo) -> None:
    from resift.cli.render import print_text, table

    facts = _facts(info)
    linked = facts.pop("most_linked")
    print_text(table(("fact", "value"), [(name, str(value)) for name, value in facts.items()]))
    if linked:
        print_text()
        print_text(
            table(("most linked article", "links to it"), [(row["title"], row["links"]) for row in linked])
        )
