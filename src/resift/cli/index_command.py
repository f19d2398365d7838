"""`resift index` and `resift graph`: build a searchable file from documents; `resift store`: optimize stores."""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path
from typing import Any, get_args

from resift._internal.sync import run_sync
from resift.agent import Pack, build_pack
from resift.cli.arguments import select
from resift.cli.terminal import Progress, count, out, style, wrap
from resift.errors import InputError, shell_path
from resift.external.records import text_from
from resift.ingest.chunking import ChunkSize
from resift.ingest.indexing import IndexReport, Outcome, index_paths, open_index
from resift.ingest.walking import FileFilter, check_paths, watch
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.models.registry import check_kind
from resift.pipeline.pipeline import Pipeline
from resift.protocols import CanOptimize
from resift.stores.sqlite import SQLiteStore


def run_index(args: argparse.Namespace) -> int:
    """Index the paths; exit code 1 if some files could not be read, or if no text was found."""
    if args.upgrade:
        old = SQLiteStore(args.store)
        try:
            upgraded = run_sync(old.upgrade())
        finally:
            old.release()
        status = "was upgraded with all documents" if upgraded else "is up to date"
        out.text(f"{args.store} {status}.")
        if not args.paths:
            return 0
    if not args.paths:
        raise InputError("Name the files and folders to index, for example: resift index docs/")
    if args.yes and not args.prune:
        raise InputError("--yes requires --prune: it allows the removal of more than half of the files.")
    # Check these first, so that a typo in a path or a model does not leave an empty index behind.
    check_paths(args.paths)
    if args.embedder is not None:
        check_kind(args.embedder, "bi-encoder")
    return run_sync(_index(args))


async def _index(args: argparse.Namespace) -> int:
    is_new, code = not args.store.exists(), 0
    file_filter = FileFilter(tuple(args.include), tuple(args.exclude), gitignore=not args.no_gitignore)
    store = open_index(args.store, **select(args, "embedder", "text_only", "language"))
    try:
        if not args.watch:
            return await _index_once(store, args, file_filter)
        async for _ in watch(args.paths, file_filter, index=args.store):
            code = await _index_once(store, args, file_filter)
            if not args.json:
                out.text("Watching for changes. Press Ctrl-C to stop.")
        return code
    finally:
        is_empty = is_new and not store.metadata().documents
        await store.close()
        if is_empty:
            args.store.unlink(missing_ok=True)


async def _index_once(store: SQLiteStore, args: argparse.Namespace, file_filter: FileFilter) -> int:
    started, passages = time.monotonic(), 0

    def show_progress(done: int, total: int) -> None:
        progress.label = f"{_rate(passages, time.monotonic() - started)}, KB"
        progress.update(min(done, total) // 1024, total // 1024)

    def add_passages(count: int) -> None:
        nonlocal passages
        passages += count

    with Progress("indexing KB") as progress:
        report = await index_paths(
            store,
            args.paths,
            size=ChunkSize(args.chunk_size, args.overlap),
            file_filter=file_filter,
            text_keys=args.text_key or None,
            prune_all=args.yes,
            progress=show_progress,
            written=add_passages,
            **select(args, "row_ids", "prune"),
        )
    for failure in report.failures():
        out.error(failure)
    (_print_data if args.json else _print_report)(report, args, time.monotonic() - started)
    return 0 if report.complete and not _is_empty(report, args) else 1


def _is_empty(report: IndexReport, args: argparse.Namespace) -> bool:
    """Whether the index is empty or all files were skipped; --prune may empty an index."""
    return not args.prune and (not report.documents or not report.files)


def _rate(passages: int, seconds: float) -> str:
    return f"{passages / max(seconds, 1e-3):.0f} passages/s"


def _print_data(report: IndexReport, args: argparse.Namespace, seconds: float) -> None:
    files = [
        {"path": file.path, "outcome": file.outcome, "chunks": file.chunks, "flags": list(file.flags)}
        | ({"reason": file.reason} if file.reason else {})
        for file in report.files
    ]
    skipped = [{"path": _show_path(file.path), "reason": file.reason} for file in report.skipped]
    data = {"store": str(args.store), "documents": report.documents, "seconds": round(seconds, 2), "files": files}
    out.json({**data, "text_fields": list(report.text_fields), "not_read": report.reasons(), "skipped": skipped})


def _print_report(report: IndexReport, args: argparse.Namespace, seconds: float) -> None:
    for file in report.files:
        for flag in file.flags:
            out.text(style(f"{file.path}: {flag}", "yellow"))
    for skipped in report.skipped:
        if skipped.failed:
            out.error(f"{_show_path(skipped.path)}: {skipped.reason}")
        elif args.verbose:
            out.text(f"skipped: {_show_path(skipped.path)} ({skipped.reason})")
    chunks = {outcome: 0 for outcome in get_args(Outcome) if report.count(outcome)}
    for file in report.files:
        chunks[file.outcome] += file.chunks
    if chunks:
        rows = [(outcome, report.count(outcome), total) for outcome, total in chunks.items()]
        out.table(("outcome", "files", "chunks"), rows)
    if report.skipped:
        reasons = ", ".join(f"{files} {reason}" for reason, files in report.reasons().items())
        out.text(f"Skipped: {reasons}." + ("" if args.verbose else " -v lists them."))
    if report.text_fields:
        out.note(text_from(report.text_fields).capitalize())
    passages = chunks.get("indexed", 0) + chunks.get("partial", 0)
    speed = f", {_rate(passages, seconds)}" if passages else ""
    out.text(f"{args.store} has {count(report.documents, 'document')}. Took {seconds:.1f} s{speed}.")
    if not _is_empty(report, args):
        if report.documents:
            out.text(f'Next: resift search "your question" --store {shell_path(args.store)}')
    elif report.complete:  # otherwise the files and reasons are listed above
        paths = ", ".join(map(_show_path, args.paths))
        out.error(f"no text was found in {paths}, so nothing was added to the index")


def _show_path(path: Path) -> str:
    return str(path).encode("utf-8", "backslashreplace").decode()


def run_store(args: argparse.Namespace) -> int:
    """Build the search indexes of all stores in the file."""
    if args.file.suffix.lower() in (".yaml", ".yml"):
        stores = [*{id(ref.owner): ref.owner for ref in Pipeline.from_yaml(args.file).stores}.values()]
    else:
        stores = [SQLiteStore(args.file)]
    return run_sync(_optimize(stores))


async def _optimize(stores: list[Any]) -> int:
    try:
        for store in stores:
            result = await store.optimize() if isinstance(store, CanOptimize) else "has no index to build"
            out.text(wrap(f"{store.name}: {result}"))
    finally:
        for store in stores:
            await store.close()
    return 0


MAX_LISTED = 10  # skipped files to list; --json lists all


def run_graph(args: argparse.Namespace) -> int:
    """Build or describe a pack; exit code 1 if some files could not be read."""
    if args.action == "info":
        return _print_pack(args)
    embedder = Embedder(args.embedder or DEFAULT_EMBEDDER)
    with Progress("embedding sections") as progress:
        report = run_sync(build_pack(args.source, args.output, embedder=embedder, progress=progress.update))
    for problem in report.failed:
        out.error(problem)
    code = 1 if report.failed else 0
    if args.json:
        counts = select(report, "articles", "sections", "links", "resumed")
        lists = {"failed": list(report.failed), "not_read": list(report.not_read)}
        out.json({"pack": str(args.output), **counts, **lists})
        return code
    resumed = f" ({report.resumed} articles from an earlier run)" if report.resumed else ""
    contents = f"{report.articles} articles, {report.sections} sections and {report.links} links"
    out.text(f"{args.output} has {contents}{resumed}.")
    if report.not_read:
        more = f" and {len(report.not_read) - MAX_LISTED} more" if len(report.not_read) > MAX_LISTED else ""
        out.text(f"Skipped: {'; '.join(report.not_read[:MAX_LISTED])}{more}.")
    out.text(f'Next: resift ask "your question" --pack {shell_path(args.output)}')
    return code


def _print_pack(args: argparse.Namespace) -> int:
    with contextlib.closing(Pack.open(args.pack)) as pack:
        info = pack.info()
    facts = select(info, "articles", "sections", "links", "embedder", "dimension", "version")
    if args.json:
        most_linked = [{"title": title, "links": links} for title, links in info.most_linked]
        return out.json({"pack": str(args.pack), **facts, "most_linked": most_linked, "meta": dict(info.meta)})
    out.table(("property", "value"), [(name, str(value)) for name, value in facts.items()])
    if info.most_linked:
        out.text()
        out.table(("most linked article", "links"), info.most_linked)
    return 0
