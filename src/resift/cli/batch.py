"""`resift batch`: embed, index, rerank or search in bulk; `resift report`: the cost of hosted calls."""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from resift import batch
from resift.batch.engines import RayEngine
from resift.batch.job import BatchEngine, BatchProgress, BatchReport, EngineName, load_shards
from resift.batch.job import run_batch as run_job
from resift.batch.shards import BatchWork
from resift.cli.arguments import select
from resift.cli.terminal import Progress, count, out, wrap
from resift.errors import InputError, shell_path
from resift.types import JsonObject, JsonValue
from resift.validation import is_finite_number


def run_batch(args: argparse.Namespace) -> int:
    """Run the job; exit code 1 if some rows failed."""
    work = _create_work(args)
    with show_progress("rows") as on_progress:
        options = select(args, "workers", "shard_rows", "max_failed")
        report = run_job(work, args.inputs, args.out, engine=_choose_engine(args), on_progress=on_progress, **options)
    load_report: BatchReport | None = None
    if args.store is not None:
        engine = _choose_engine(args)
        with show_progress("loading") as on_progress:
            load_report = load_shards(
                args.out, args.store, engine=engine, workers=args.workers, on_progress=on_progress
            )
    (_print_data if args.json else _print_report)(args, report, load_report)
    return 1 if report.failed or (load_report is not None and load_report.failed) else 0


@contextmanager
def show_progress(label: str) -> Iterator[Callable[[BatchProgress], None]]:
    """Yield a function that draws one bar for all shards, with rate and failed rows."""
    with Progress(f"{label} (starting)") as progress:

        def draw(state: BatchProgress) -> None:
            if state.rows:
                if progress.label.endswith("(starting)"):
                    progress.close()  # startup time must not count toward the rate
                rate = (state.rows - state.skipped) / max(state.seconds, 0.001)
                failed = f", {state.failed} failed" if state.failed else ""
                progress.label = f"{label} ({rate:.1f}/s{failed})"
            progress.update(state.rows, state.total)

        yield draw


def _choose_engine(args: argparse.Namespace) -> EngineName | BatchEngine:
    if args.address is None:
        name: EngineName = args.engine
        return name
    if args.engine != "ray":
        raise InputError("--address requires --engine ray.")
    return RayEngine(args.workers, address=args.address)


def _create_work(args: argparse.Namespace) -> BatchWork:
    if args.text_key and args.kind == "eval":
        raise InputError("--text-key works only with resift batch rerank, embed or index.")
    if args.store is not None and args.kind != "index":
        raise InputError("--store works only with resift batch index.")
    if args.kind == "eval":
        if not args.pipeline:
            raise InputError("eval requires --pipeline FILE: the pipeline to run.")
        pipeline = str(args.pipeline.absolute())  # workers may run in another folder
        return batch.EvaluateWork(pipeline=pipeline, k=args.k or 100)
    options = {"text_keys": args.text_key or None, **({"model": args.model} if args.model else {})}
    if args.kind == "rerank":
        return batch.RerankWork(k=args.k, **options)
    return batch.EmbedWork(**options) if args.kind == "embed" else batch.IndexWork(**options)


def _print_data(args: argparse.Namespace, report: BatchReport, load_report: BatchReport | None) -> None:
    hours = report.hours_per_million
    data = select(report, "rows", "written", "failed", "shards", "skipped", "workers")
    data |= {"out": str(report.folder), "seconds": round(report.seconds, 2)}
    data["hours_per_million"] = None if hours is None else round(hours, 4)
    data["cost_per_million"] = None if hours is None or not args.price else round(hours * args.price, 4)
    out.json({**data, "loaded": None if load_report is None else load_report.written})


def _print_report(args: argparse.Namespace, report: BatchReport, load_report: BatchReport | None) -> None:
    for name in report.empty:
        out.error(f"{name} has no rows")
    if report.failed:
        out.error(f"{count(report.failed, 'row')} failed; see {report.folder / 'failed.parquet'}")
    resumed = f", {report.skipped} of {report.shards} shards from an earlier run" if report.skipped else ""
    rows = count(report.rows, "row")
    out.text(wrap(f"{rows}, {report.written} written, {report.seconds:.1f} s{resumed}."))
    hours = report.hours_per_million
    if hours is not None:
        time = f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.1f} min"
        cost = f", {hours * args.price:.2f} at {args.price:g} per hour" if args.price else ""
        workers = count(report.workers, "worker")
        out.text(wrap(f"A million rows take {time} with {workers} on this hardware{cost}."))
    if load_report is not None:
        # The index may contain fewer chunks, because chunks with the same id replace one another.
        out.text(f"Loaded {load_report.written} chunks into {args.store} ({load_report.seconds:.1f} s).")
        is_pipeline = args.store.suffix.lower() in (".yaml", ".yml")
        command = "resift store optimize" if is_pipeline else "resift search … --store"
        out.text(f"Next: {command} {shell_path(args.store)}")


_MAX_AMOUNT = 1e15
_BILLED, _SKIPPED = "provider_billed", "cross_encoder_skipped"
_NOTES = {
    "unpriced": "calls have no known price and are not included in the total",
    "estimated": "calls reported no usage; their usage is estimated",
    "unchecked": "calls have a price that was not confirmed on the provider's website",
}


def run_report(args: argparse.Namespace) -> int:
    """Add up the events and show a row per day, provider and model."""
    rows, skipped = _add_up(event for path in args.logs for event in _read_events(path))
    total = math.fsum(row["cost_usd"] for row in rows)
    if args.json:
        return out.json({"rows": rows, "total_usd": total, "skipped_for_cost": dict(sorted(skipped.items()))})
    if not rows and not skipped:
        files = ", ".join(map(str, args.logs))
        raise InputError(f"No event {_BILLED!r} in {files}. Pass a file written by resift.events.JsonlSink.")
    if rows:
        keys = ("provider", "model", "calls", "tokens", "search_units")
        cells = [(row["day"] or "–", *(row[key] for key in keys), f"{row['cost_usd']:.4f}") for row in rows]
        out.table(("day", *keys[:-1], "searches", "USD"), cells, stretch=2)
        out.text(f"total: ${total:.4f}")
    for name, meaning in _NOTES.items():
        if calls := sum(row[name] for row in rows):
            out.text(f"{calls} {meaning}")
    for provider, calls in sorted(skipped.items()):
        out.text(f"{provider}: skipped {calls} times because of a cost limit")
    return 0


def _add_up(events: Iterator[JsonObject]) -> tuple[list[JsonObject], Counter[str]]:
    """Return a row per day, provider and model, and the skipped calls per provider."""
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    costs: dict[tuple[str, str, str], list[float]] = {}
    skipped: Counter[str] = Counter()
    for event in events:
        provider = str(event.get("provider", ""))
        if event["event"] == _SKIPPED:
            skipped[provider] += event.get("reason") == "cost"
            continue
        key = (str(event.get("time") or "")[:10], provider, str(event.get("model", "")))
        cost = event.get("cost_usd")
        counts.setdefault(key, Counter()).update(
            calls=1,
            tokens=int(_number(event.get("tokens"))),
            search_units=int(_number(event.get("search_units"))),
            unpriced=int(cost is None),
            estimated=int(event.get("estimated") is True),
            unchecked=int(cost is not None and event.get("price_checked") is False),
        )
        costs.setdefault(key, []).append(_number(cost))
    rows = []
    for key in sorted(counts):
        names = dict(zip(("day", "provider", "model"), key, strict=True))
        rows.append({**names, **counts[key], "cost_usd": math.fsum(costs[key])})
    return rows, +skipped


def _number(value: JsonValue) -> float:
    """Return a count or an amount; 0 for anything that no provider can have reported."""
    return value if isinstance(value, (int, float)) and is_finite_number(value) and 0 <= value < _MAX_AMOUNT else 0


def _read_events(path: Path) -> Iterator[JsonObject]:
    """Yield the cost events in a log; skip truncated lines and all other lines."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in (line for line in lines if _BILLED in line or _SKIPPED in line):
            with suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") in (_BILLED, _SKIPPED):
                    yield event
