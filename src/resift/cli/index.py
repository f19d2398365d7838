"""`resift index`: files into one searchable file."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from resift.cli.options import add_repeated, add_store, add_text_keys
from resift.errors import InputError, shell_path

if TYPE_CHECKING:
    from resift.ingest.indexing import IndexReport
    from resift.stores.sqlite import SQLiteStore


EXAMPLES = """\
Reads source code and any other text, Markdown, HTML, JSON, JSONL, CSV, YAML, TOML, XML, PDF, Word, Excel,
PowerPoint, notebooks, mail, e-books, and .gz of these (extra: files). Files that did not change are skipped,
changed ones replaced. A run that was stopped goes on where it was when started again. Rows of JSONL and CSV
with an id of their own are kept whole; everything else is cut into overlapping chunks. The text of a row is
its title and every other text field, or what --text-key names. Folders of installed packages and caches
(node_modules, __pycache__, virtual environments) are not read unless you name them. What is not read is
counted by reason at the end; -v names it.

examples:
  resift index docs/ --store docs.db
  resift index . --include '*.py' --include '*.md' --exclude 'tests/**'
  resift index corpus.jsonl --store corpus.db --text-only
  resift index --upgrade --store old.db
  resift index docs/ --store docs.db --prune --watch
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift index`."""
    parser.epilog = EXAMPLES
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files and folders to index")
    add_store(parser)
    parser.add_argument("--embedder", default=None, metavar="MODEL", help="embedding model of a new index")
    parser.add_argument(
        "--language", default=None, metavar="NAME", help="stems of a new index: auto (default), german, none"
    )
    parser.add_argument("--text-only", action="store_true", help="index words only: no model, no vectors")
    _choosing(parser)
    _chunking(parser)
    parser.add_argument("--prune", action="store_true", help="forget indexed files that no longer exist")
    parser.add_argument("--yes", action="store_true", help="let --prune forget more than half of them")
    parser.add_argument(
        "--upgrade", action="store_true", help="first bring an index of an older Resift up to date"
    )
    parser.add_argument("--watch", action="store_true", help="go on, and index what changes, until Ctrl-C")
    parser.add_argument("-v", "--verbose", action="store_true", help="name every path that was not read")
    parser.add_argument("--json", action="store_true", help="write the report as JSON")


def _choosing(parser: argparse.ArgumentParser) -> None:
    add_repeated(parser, "--include", "GLOB", "of folders only these files")
    add_repeated(parser, "--exclude", "GLOB", "not these files")
    parser.add_argument("--no-gitignore", action="store_true", help="read what .gitignore leaves out, too")


def _chunking(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--chunk-size", type=int, default=200, metavar="WORDS", help="words per chunk (default: 200)"
    )
    parser.add_argument(
        "--overlap", type=int, default=40, metavar="WORDS", help="words shared by neighbours (default: 40)"
    )
    parser.add_argument(
        "--row-ids",
        choices=("own", "path"),
        default="own",
        help="ids of rows: their own (default), or the file's path before them",
    )

    add_text_keys(parser)


def run(args: argparse.Namespace) -> int:
    """Index the paths; exit code 1 if something could not be read, after all else was, or nothing was."""
    from resift._internal.sync import run_sync
    from resift.ingest.opening import open_index
    from resift.ingest.walking import check_paths

    if args.upgrade:
        _upgrade(args.store)
        if not args.paths:
            return 0
    if not args.paths:
        raise InputError("Name the files and folders to index, for example: resift index docs/")
    if args.yes and not args.prune:
        raise InputError("--yes is for --prune: it lets it forget more than half of the indexed files.")
    # Before the store is opened: a typo in a path must not leave an empty index behind.
    check_paths(args.paths)
    store = open_index(args.store, embedder=args.embedder, text_only=args.text_only, language=args.language)
    return run_sync(_watched(store, args) if args.watch else _once(store, args))


def _upgrade(path: Path) -> None:
    from resift._internal.sync import run_sync
    from resift.cli.render import print_text
    from resift.stores.sqlite import SQLiteStore

    store = SQLiteStore(path)
    try:
        upgraded = run_sync(store.upgrade())
    finally:
        store.release()
    print_text(f"{path} was upgraded; every document is there." if upgraded else f"{path} is up to date.")


async def _once(store: SQLiteStore, args: argparse.Namespace) -> int:
    try:
        return await _indexed(store, args)
    finally:
        await store.close()


async def _watched(store: SQLiteStore, args: argparse.Namespace) -> int:
    from resift.cli.render import print_text
    from resift.ingest.walking import changes

    code = 0
    try:
        async for _ in changes(args.paths, _choice(args), index=args.store):
            code = await _indexed(store, args)
            if not args.json:
                print_text("Watching for changes. Ctrl-C ends it.")
    finally:
        await store.close()
    return code


async def _indexed(store: SQLiteStore, args: argparse.Namespace) -> int:
    from resift.cli.render import Progress
    from resift.ingest.chunking import ChunkSize
    from resift.ingest.indexing import index_paths

    meter = Progress("indexing KB")
    started = time.monotonic()
    passages = 0

    def progress(done: int, total: int) -> None:
        meter.label = f"{_rate(passages, time.monotonic() - started)}, KB"
        meter.update(min(done, total) // 1024, total // 1024)

    def written(count: int) -> None:
        nonlocal passages
        passages += count

    with meter:
        report = await index_paths(
            store,
            args.paths,
            size=ChunkSize(args.chunk_size, args.overlap),
            file_filter=_choice(args),
            row_ids=args.row_ids,
            text_keys=args.text_key,
            prune=args.prune,
            prune_all=args.yes,
            progress=progress,
            written=written,
        )
    show = _print_data if args.json else _print_report
    show(report, args, time.monotonic() - started)
    return 0 if report.complete and not _nothing_read(report, args) else 1


def _nothing_read(report: IndexReport, args: argparse.Namespace) -> bool:
    """Whether the run left the index empty, or all files were passed over; --prune may empty an index."""
    return not args.prune and (not report.documents or not report.files)


def _rate(passages: int, seconds: float) -> str:
    return f"{passages / max(seconds, 1e-3):.0f} passages/s"


def _choice(args: argparse.Namespace) -> Any:
    from resift.ingest.walking import Choice

    return Choice(tuple(args.include), tuple(args.exclude), gitignore=not args.no_gitignore)


def _print_data(report: IndexReport, args: argparse.Namespace, seconds: float) -> None:
    from resift.cli.render import complain, print_json

    for file in report.files:
        if file.reason:
            complain(file.reason)
    files = [
        {"path": file.path, "outcome": file.outcome, "chunks": file.chunks, "flags": list(file.flags)}
        | ({"reason": file.reason} if file.reason else {})
        for file in report.files
    ]
    print_json(
        {
            "store": str(args.store),
            "documents": report.documents,
            "seconds": round(seconds, 2),
            "files": files,
            "text_fields": list(report.text_fields),
            "not_read": report.reasons(),
            "skipped": [{"path": _shown(one.path), "reason": one.reason} for one in report.skipped],
        }
    )


def _print_report(report: IndexReport, args: argparse.Namespace, seconds: float) -> None:
    from resift.cli.render import complain, paint, print_note, print_text, table
    from resift.external.records import text_from
    from resift.ingest.indexing import Outcome

    for file in report.files:
        if file.reason:
            complain(file.reason)
        for flag in file.flags:
            print_text(paint(f"{file.path}: {flag}", "yellow"))
    for one in report.skipped:
        if one.failed:
            complain(f"{_shown(one.path)}: {one.reason}")
        elif args.verbose:
            print_text(f"not read: {_shown(one.path)} ({one.reason})")
    rows = [
        (outcome, report.count(outcome), sum(file.chunks for file in report.files if file.outcome == outcome))
        for outcome in get_args(Outcome)
        if report.count(outcome)
    ]
    if rows:
        print_text(table(("outcome", "files", "chunks"), rows))
    _print_skipped(report, verbose=args.verbose)
    passages = sum(file.chunks for file in report.files if file.outcome in ("indexed", "partial"))
    speed = f", {_rate(passages, seconds)}" if passages else ""
    if report.text_fields:
        print_note(text_from(report.text_fields).capitalize())
    documents = "1 document" if report.documents == 1 else f"{report.documents} documents"
    print_text(f"{args.store} holds {documents}. Took {seconds:.1f} s{speed}.")
    if _nothing_read(report, args):
        named = ", ".join(_shown(path) for path in args.paths)
        if report.complete:  # otherwise the lines above already name the files and the reasons
            complain(f"no text was found in {named}, so nothing was added to the index")
    elif report.documents:
        print_text(f'Next: resift search "your question" --store {shell_path(args.store)}')


def _print_skipped(report: IndexReport, *, verbose: bool) -> None:
    from resift.cli.render import print_text

    if report.skipped:
        counted = ", ".join(f"{count} {reason}" for reason, count in report.reasons().items())
        print_text(f"Not read: {counted}." + ("" if verbose else " Name them with -v."))


def _shown(path: Path) -> str:
    return str(path).encode("utf-8", "backslashreplace").decode()
