"""`resift batch`: embed, index, rerank or ask in bulk, resumable, on this machine or on Ray."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resift.cli.options import at_least_one
from resift.errors import InputError

if TYPE_CHECKING:
    from resift.batch.job import BatchReport
    from resift.batch.work import BatchWork

EXAMPLES = """\
INPUT is Parquet or JSONL: files, folders, patterns, or anything that fsspec can open. OUT gets Parquet
shards, failed.parquet with the rows that could not be done and why, and at last manifest.json. Run the same
command again after any fault: it goes on where it stopped, to the same bytes.

  rerank   rows with query and candidates   ->  order, scores, tier, degraded
  embed    rows with text                   ->  vector
  index    rows with text (id, title, …)    ->  chunks with vectors; with --store also into an index
  eval     rows with query                  ->  answers of --pipeline with their trace

examples:
  resift batch rerank questions.parquet -o reranked/ --workers 2
  resift batch embed passages/ -o vectors/ --engine ray --workers 8
  resift batch index corpus.jsonl -o chunks/ --store corpus.db
  resift batch eval questions.jsonl -o answers/ --pipeline mine.yaml
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift batch`."""
    parser.epilog = EXAMPLES
    parser.add_argument("kind", choices=("rerank", "embed", "index", "eval"), help="what to do with each row")
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="Parquet or JSONL")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="OUT", help="the folder to write")
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="who does it (default: local)"
    )
    parser.add_argument(
        "--workers", type=at_least_one, metavar="N", help="processes or actors (default: cores)"
    )
    parser.add_argument(
        "--shard-rows", type=at_least_one, default=1000, metavar="N", help="rows a shard (default: 1000)"
    )
    parser.add_argument(
        "--most-failed",
        type=int,
        default=1000,
        metavar="N",
        help="stop after so many failed rows (default: 1000)",
    )
    parser.add_argument("--model", metavar="ID", help="an allowed model (default: the usual one)")
    parser.add_argument("-k", type=at_least_one, metavar="K", help="rerank, eval: keep the best K")
    parser.add_argument("--store", type=Path, metavar="FILE", help="index: load the chunks into this index")
    parser.add_argument("--pipeline", metavar="FILE", help="eval: the pipeline file to ask")
    parser.add_argument("--json", action="store_true", help="write the summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Do the job; exit code 1 if rows failed, after all others were done."""
    from resift.batch.job import BatchProgress, run_batch
    from resift.cli.render import Progress

    work = _work(args)
    meter = Progress("rows", 1)

    def progress(state: BatchProgress) -> None:
        meter.label = f"rows ({state.failed} failed)" if state.failed else "rows"
        meter.total = max(1, state.total)
        meter.show(state.rows)

    try:
        report = run_batch(
            work,
            args.inputs,
            args.out,
            engine=args.engine,
            workers=args.workers,
            shard_rows=args.shard_rows,
            most_failed=args.most_failed,
            on_progress=progress,
        )
    finally:
        meter.close()
    loaded = _load(args) if args.store is not None else None
    _print(args, report, loaded)
    return 1 if report.failed else 0


def _work(args: argparse.Namespace) -> BatchWork:
    from resift import batch

    model = {"model": args.model} if args.model else {}
    if args.store is not None and args.kind != "index":
        raise InputError("--store goes with: resift batch index")
    if args.kind == "eval":
        if not args.pipeline:
            raise InputError("eval needs --pipeline FILE: the pipeline to ask.")
        return batch.EvaluateWork(pipeline=args.pipeline, k=args.k or 100)
    if args.kind == "rerank":
        return batch.RerankWork(k=args.k, **model)
    return batch.EmbedWork(**model) if args.kind == "embed" else batch.IndexWork(**model)


def _load(args: argparse.Namespace) -> int:
    from resift.batch.loading import GivenVectors, load_shards
    from resift.cli.render import Progress
    from resift.stores.sqlite import SQLiteStore

    meter = Progress("loading", 1)

    def open_store(vectors: GivenVectors) -> Any:
        return SQLiteStore(args.store, embedder=vectors, create=True)

    def progress(done: int, total: int) -> None:
        meter.total = max(1, total)
        meter.show(done)

    try:
        return load_shards(args.out, open_store, on_progress=progress)
    finally:
        meter.close()


def _print(args: argparse.Namespace, report: BatchReport, loaded: int | None) -> None:
    from resift.cli.render import complain, print_json, print_text

    if args.json:
        data = {
            "out": str(report.folder),
            "rows": report.rows,
            "written": report.written,
            "failed": report.failed,
            "shards": report.shards,
            "skipped": report.skipped,
            "seconds": round(report.seconds, 2),
            "loaded": loaded,
        }
        print_json(data)
        return
    if report.failed:
        complain(f"{report.failed} rows failed; see {report.folder / 'failed.parquet'}")
    again = f", {report.skipped} of {report.shards} shards were there" if report.skipped else ""
    print_text(f"{report.rows} rows, {report.written} written, {report.seconds:.1f} s{again}.")
    if report.hours_per_million is not None and not report.skipped:
        print_text(f"At this rate a million rows take {report.hours_per_million:.1f} h on this hardware.")
    if loaded is not None:
        print_text(f"{args.store} holds {loaded} chunks of them. Next: resift search … --store {args.store}")
    sys.stdout.flush()
