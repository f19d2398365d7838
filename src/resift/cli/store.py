"""`resift store`: look after what is searched."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from resift.cli.render import print_text, prose
from resift.protocols import Optimises

_EXAMPLES = """examples:
  resift store optimise docs.db          merge the word index of a file
  resift store optimise pipeline.yaml    build the vector index of every store in it
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    summary = "build or renew the indexes that searches use"
    sub = actions.add_parser("optimise", help=summary, description=summary[0].upper() + summary[1:] + ".")
    sub.add_argument("file", type=Path, help="an index, or a pipeline file (YAML) whose stores are meant")


def run(args: argparse.Namespace) -> int:
    """Optimise every store of the file that can be."""
    from resift._internal.sync import run_sync

    return run_sync(_optimise(_stores(args.file)))


def _stores(file: Path) -> list[Any]:
    if file.suffix.lower() in (".yaml", ".yml"):
        from resift.pipeline.pipeline import Pipeline

        found = [ref.owner for ref in Pipeline.from_yaml(file).stores]
        return list({id(store): store for store in found}.values())
    from resift.stores.sqlite import SQLiteStore

    return [SQLiteStore(file)]


async def _optimise(stores: list[Any]) -> int:
    try:
        for store in stores:
            done = await store.optimise() if isinstance(store, Optimises) else "has no index to build"
            print_text(prose(f"{store.name}: {done}"))
    finally:
        for store in stores:
            await store.close()
    return 0
