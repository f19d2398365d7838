"""`resift index`: files into one searchable file."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from resift.ingest.indexing import IndexReport
    from resift.stores.sqlite import SQLiteStore

DEFAULT_STORE = "resift.db"

EXAMPLES = """\
Reads text, Markdown, HTML, JSONL, CSV and PDF (extra: pdf). Files that did not change are skipped, changed
ones replaced. A run that was stopped goes on where it was when started again. Rows of JSONL and CSV with an
id of their own are kept whole; everything else is cut into overlapping chunks.

examples:
  resift index docs/ --store docs.db
  resift index corpus.jsonl --store corpus.db --text-only
  resift index --upgrade --store old.db
  resift index docs/ --store docs.db --prune --chunk-size 300 --overlap 50
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift index`."""
    parser.epilog = EXAMPLES
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files and folders to index")
    parser.add_argument(
        "--store",
        type=Path,
        default=Path(DEFAULT_STORE),
        metavar="FILE",
        help=f"the index (default: {DEFAULT_STORE})",
    )
    parser.add_argument("--embedder", default=None, metavar="MODEL", help="embedding model of a new index")
    parser.add_argument("--text-only", action="store_true", help="index words only: no model, no vectors")
    parser.add_argument(
        "--chunk-size", type=int, default=200, metavar="WORDS", help="words per chunk (default: 200)"
    )
    parser.add_argument(
        "--overlap", type=int, default=40, metavar="WORDS", help="words shared by neighbours (default: 40)"
    )
    parser.add_argument("--prune", action="store_true", help="forget indexed files that no longer exist")
    parser.add_argument(
        "--upgrade", action="store_true", help="first bring an index of an older Resift up to date"
    )
    parser.add_argument("--json", action="store_true", help="write the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Index the paths; exit code 1 if a file could not be read, after all others were."""
    from resift.errors import InputError
    from resift.ingest.chunking import ChunkSize
    from resift.ingest.opening import open_index
    from resift.sync import run_sync

    if args.upgrade:
        _upgrade(args.store)
        if not args.paths:
            return 0
    if not args.paths:
        raise InputError("Name the files and folders to index, for example: resift index docs/")
    size = ChunkSize(args.chunk_size, args.overlap).checked()
    started = time.monotonic()
    store = open_index(args.store, embedder=args.embedder, text_only=args.text_only)
    report = run_sync(_indexed(store, args, size))
    show = _print_data if args.json else _print_report
    show(report, args.store, time.monotonic() - started)
    return 1 if report.count("failed") else 0


def _upgrade(path: Path) -> None:
    from resift.cli.render import print_text
    from resift.stores.sqlite import SQLiteStore
    from resift.sync import run_sync

    store = SQLiteStore(path)
    try:
        upgraded = run_sync(store.upgrade())
    finally:
        store.release()
    print_text(f"{path} was upgraded; every document is there." if upgraded else f"{path} is up to date.")


async def _indexed(store: SQLiteStore, args: argparse.Namespace, size: Any) -> IndexReport:
    from resift.cli.render import Progress
    from resift.ingest.indexing import index_paths

    meter = Progress("indexing KB", 1)

    def progress(done: int, total: int) -> None:
        meter.total = max(1, total // 1024)
        meter.show(min(done // 1024, meter.total))

    try:
        return await index_paths(store, args.paths, size=size, prune=args.prune, progress=progress)
    finally:
        meter.close()
        await store.close()


def _print_data(report: IndexReport, store: Path, seconds: float) -> None:
    from resift.cli.render import complain, print_json

    for file in report.files:
        if file.outcome == "failed":
            complain(file.reason)
    files = [
        {"path": file.path, "outcome": file.outcome, "chunks": file.chunks, "flags": list(file.flags)}
        | ({"reason": file.reason} if file.reason else {})
        for file in report.files
    ]
    print_json(
        {"store": str(store), "documents": report.documents, "seconds": round(seconds, 2), "files": files}
    )


def _print_report(report: IndexReport, store: Path, seconds: float) -> None:
    from resift.cli.render import complain, paint, print_text, table
    from resift.ingest.indexing import Outcome

    for file in report.files:
        if file.outcome == "failed":
            complain(file.reason)
        for flag in file.flags:
            print_text(paint(f"{file.path}: {flag}", "yellow"))
    rows = [
        (outcome, report.count(outcome), sum(file.chunks for file in report.files if file.outcome == outcome))
        for outcome in get_args(Outcome)
        if report.count(outcome)
    ]
    print_text(table(("outcome", "files", "chunks"), rows))
    print_text(f"{store} holds {report.documents} documents. Took {seconds:.1f} s.")
    print_text(f'Next: resift search "your question" --store {store}')
