"""`resift batch`: embed, index, rerank or ask in bulk, resumable, on this machine or on Ray."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from resift.cli.options import add_count, add_text_keys, at_least_one, at_least_zero, price
from resift.errors import InputError, shell_path

if TYPE_CHECKING:
    from resift.batch.job import BatchEngine, BatchProgress, BatchReport, EngineName
    from resift.batch.work import BatchWork

EXAMPLES = """\
INPUT is Parquet or JSONL: files, folders, patterns, or anything that fsspec can open. OUT gets Parquet
shards, failed.parquet with the rows that could not be done and why, and at last manifest.json. Run the same
command again after any fault: it goes on where it stopped, to the same bytes.

  rerank   rows with query and candidates   ->  order, scores, tier, degraded
  embed    rows with text                   ->  vector
  index    rows with text (id, title, …)    ->  chunks with vectors; with --store also into an index
  eval     rows with query                  ->  answers of --pipeline with their trace
  record   rows with query, id (qrels)      ->  what --pipeline's stores and reranker say, for: resift tune

examples:
  resift batch rerank questions.parquet -o reranked/ --workers 2
  resift batch embed passages/ -o vectors/ --engine ray --workers 8
  resift batch index corpus.jsonl -o chunks/ --store corpus.db
  resift batch index corpus/ -o chunks/ --store postgres.yaml --workers 4
  resift batch eval questions.jsonl -o answers/ --pipeline mine.yaml
"""


KINDS = ("rerank", "embed", "index", "eval", "record")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift batch`."""
    parser.epilog = EXAMPLES
    parser.add_argument("kind", choices=KINDS, help="what to do with each row")
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="Parquet or JSONL")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="OUT", help="the folder to write")
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="who does it (default: local)"
    )
    parser.add_argument(
        "--address", metavar="ADDRESS", help="ray: the cluster (default: RAY_ADDRESS, or one started here)"
    )
    parser.add_argument(
        "--workers", type=at_least_one, metavar="N", help="processes or actors (default: cores)"
    )
    add_count(parser, "--shard-rows", 1000, "rows a shard")
    parser.add_argument(
        "--most-failed",
        type=at_least_zero,
        default=1000,
        metavar="N",
        help="stop after so many failed rows (default: 1000)",
    )
    parser.add_argument("--model", metavar="ID", help="an allowed model (default: the usual one)")
    parser.add_argument("-k", type=at_least_one, metavar="K", help="rerank, eval: keep the best K")
    add_text_keys(parser)
    parser.add_argument(
        "--store",
        type=Path,
        metavar="FILE",
        help="index: load the chunks into this index, or into the store of this pipeline file (YAML)",
    )
    parser.add_argument("--pipeline", metavar="FILE", help="eval, record: the pipeline file to ask")
    add_count(parser, "--depth", 20, "record: hits that are reranked")
    parser.add_argument("--price", type=price, metavar="P", help="cost of an hour, to price a million rows")
    parser.add_argument("--json", action="store_true", help="write the summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Do the job; exit code 1 if rows failed, after all others were done."""
    from resift.batch.job import run_batch

    work = _work(args)
    with _meter("rows") as progress:
        report = run_batch(
            work,
            args.inputs,
            args.out,
            engine=_engine(args),
            workers=args.workers,
            shard_rows=args.shard_rows,
            max_failed=args.most_failed,
            on_progress=progress,
        )
    loaded = _load(args) if args.store is not None else None
    _print(args, report, loaded)
    return 1 if report.failed or (loaded is not None and loaded.failed) else 0


@contextmanager
def _meter(label: str) -> Iterator[Callable[[BatchProgress], None]]:
    """Give a function that draws one bar over all shards, with rate and failed rows."""
    from resift.cli.render import Progress

    meter = Progress(label)

    def progress(state: BatchProgress) -> None:
        if not state.rows:  # drawn by another bar: the time to start tells nothing of the time left
            Progress(f"{label} (starting)").update(0, state.total)
            return
        fresh = (state.rows - state.skipped) / max(state.seconds, 0.001)
        failed = f", {state.failed} failed" if state.failed else ""
        meter.label = f"{label} ({fresh:.1f}/s{failed})"
        meter.update(state.rows, state.total)

    with meter:
        yield progress


def _engine(args: argparse.Namespace) -> EngineName | BatchEngine:
    if args.address is None:
        name: EngineName = args.engine
        return name
    if args.engine != "ray":
        raise InputError("--address goes with: --engine ray")
    from resift.batch.engines import RayEngine

    return RayEngine(args.workers, address=args.address)


def _work(args: argparse.Namespace) -> BatchWork:
    from resift import batch

    if args.text_key and args.kind in ("eval", "record"):
        raise InputError("--text-key goes with: resift batch rerank, embed or index")
    options = {"text_keys": args.text_key, **({"model": args.model} if args.model else {})}
    if args.store is not None and args.kind != "index":
        raise InputError("--store goes with: resift batch index")
    if args.kind in ("eval", "record"):
        if not args.pipeline:
            raise InputError(f"{args.kind} needs --pipeline FILE: the pipeline to ask.")
        pipeline = str(Path(args.pipeline).absolute())  # workers may be elsewhere
        if args.kind == "record":
            return batch.RecordWork(pipeline=pipeline, depth=args.depth)
        return batch.EvaluateWork(pipeline=pipeline, k=args.k or 100)
    if args.kind == "rerank":
        return batch.RerankWork(k=args.k, **options)
    return batch.EmbedWork(**options) if args.kind == "embed" else batch.IndexWork(**options)


def _load(args: argparse.Namespace) -> BatchReport:
    from resift.batch.loading import load_shards

    with _meter("loading") as progress:
        return load_shards(
            args.out, args.store, engine=_engine(args), workers=args.workers, on_progress=progress
        )


def _print(args: argparse.Namespace, report: BatchReport, loaded: BatchReport | None) -> None:
    from resift.cli.render import complain, print_json, print_text, prose

    recording = _recording(args)
    hours = report.hours_per_million
    if args.json:
        data = {
            "out": str(report.folder),
            "rows": report.rows,
            "written": report.written,
            "failed": report.failed,
            "shards": report.shards,
            "skipped": report.skipped,
            "seconds": round(report.seconds, 2),
            "workers": report.workers,
            "hours_per_million": None if hours is None else round(hours, 4),
            "cost_per_million": None if hours is None or not args.price else round(hours * args.price, 4),
            "loaded": None if loaded is None else loaded.written,
            "recording": recording,
        }
        print_json(data)
        return
    for name in report.empty:
        complain(f"{name} has no rows")
    if report.failed:
        complain(f"{_rows(report.failed)} failed; see {report.folder / 'failed.parquet'}")
    again = f", {report.skipped} of {report.shards} shards were there" if report.skipped else ""
    print_text(prose(f"{_rows(report.rows)}, {report.written} written, {report.seconds:.1f} s{again}."))
    if hours is not None:
        price = f", {hours * args.price:.2f} at {args.price:g} an hour" if args.price else ""
        workers = f"{report.workers} worker{'s' if report.workers > 1 else ''}"
        print_text(prose(f"A million rows cost {_hours(hours)} of {workers} on this hardware{price}."))
    if loaded is not None:
        # Not "holds": chunks of the same id replace one another.
        print_text(f"{loaded.written} chunks are loaded into {args.store} ({loaded.seconds:.1f} s).")
        print_text(_next(args.store))
    if recording is not None:
        print_text(f"Next: resift tune {shell_path(recording)}")
    sys.stdout.flush()


def _recording(args: argparse.Namespace) -> str | None:
    from resift.batch import write_recording

    return str(write_recording(args.out)) if args.kind == "record" else None


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _hours(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.1f} min"


def _next(store: Path) -> str:
    if store.suffix.lower() in (".yaml", ".yml"):
        return f"Next: resift store optimise {shell_path(store)}"
    return f"Next: resift search … --store {shell_path(store)}"
