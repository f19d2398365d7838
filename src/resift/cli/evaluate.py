"""`resift eval`, `resift compare` and `resift bench`: measure pipelines, run files and the benchmarks."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path

from resift._internal.files import atomic_write, cache_folder
from resift.cli.arguments import select
from resift.cli.rerank import list_names
from resift.cli.terminal import Progress, out, style, width, wrap
from resift.errors import DataFormatError, InputError
from resift.evaluation.evaluated_systems import System, find_systems
from resift.evaluation.html_report import report
from resift.evaluation.measures import DEFAULT_MEASURES, Judge, format_p, measure_name
from resift.evaluation.readers import Collection, read_collection, read_qrels, read_run
from resift.evaluation.runner import MovedQuery, Outcome, differences, evaluate, index_for, moved_queries
from resift.text.snippets import clip_words
from resift.types import JsonObject


@dataclass(frozen=True)
class Measurements:
    """Results of several systems on the same data."""

    title: str
    outcomes: list[Outcome]
    qrels: dict[str, dict[str, int]]
    queries: dict[str, str]
    models: tuple[str, ...] = ()


def run_eval(args: argparse.Namespace) -> int:
    """Evaluate and show the results; exit code 0 unless an input is broken."""
    measurements = _measure(args, args.pipeline)
    outcomes = measurements.outcomes
    if args.report:
        _write_report(args, measurements)
    if args.json:
        results: list[JsonObject] = []
        for outcome in outcomes:
            quality = outcome.quality
            data = select(outcome, "name", "degraded", "reused")
            data |= {"latency_ms": outcome.latency, "queries": len(next(iter(quality.per_query.values())))}
            data |= {"mean": quality.means(complete=args.complete), "mean_complete": quality.means(complete=True)}
            data |= {"missing": list(quality.missing), "unjudged": list(quality.unjudged)}
            if args.per_query:
                data["per_query"] = {measure: dict(values) for measure, values in quality.per_query.items()}
            results.append(data)
        return out.json({"data": measurements.title, "judged": len(measurements.qrels), "results": results})
    measures = list(outcomes[0].quality.per_query)
    _print_means(outcomes, measures, complete=args.complete)
    for measure in measures if args.per_query else ():
        out.text()
        out.text(measure)
        values = [outcome.quality.per_query[measure] for outcome in outcomes]
        queries = dict.fromkeys(query for each in values for query in each)
        rows = [[query, *(f"{each[query]:.4f}" if query in each else "–" for each in values)] for query in queries]
        out.table(["query", *(outcome.name for outcome in outcomes)], rows)
    return 0


def _print_means(outcomes: list[Outcome], measures: list[str], *, complete: bool) -> None:
    has_latency = any(outcome.latency for outcome in outcomes)
    counts = [len(outcome.quality.per_query[measures[0]]) for outcome in outcomes]
    has_counts = len(set(counts)) > 1
    rows: list[list[object]] = []
    for outcome, queries in zip(outcomes, counts, strict=True):
        means = outcome.quality.means(complete=complete)
        row: list[object] = [outcome.name, *(f"{means[measure]:.4f}" for measure in measures)]
        row += [queries] if has_counts else []
        row += [f"{outcome.latency.get(name, 0):.1f}" for name in ("p50", "p95", "p99")] if has_latency else []
        rows.append(row)
    headers = ["pipeline" if has_latency else "run", *measures, *(["queries"] if has_counts else [])]
    out.table([*headers, *(("p50 ms", "p95 ms", "p99 ms") if has_latency else ())], rows, stretch=0)
    if not has_counts:
        out.text(style(f"{counts[0]} queries", "dim"))


def run_compare(args: argparse.Namespace) -> int:
    """Compare and show the differences."""
    pipelines: list[str] = []
    if args.qrels is None:
        args.data, pipelines = args.data[:1], args.data[1:]
    if len(pipelines or args.data) < 2:
        example = "resift compare DATA rrf default"
        raise InputError(f"Name two or more pipelines or run files to compare, for example: {example}")
    measurements = _measure(args, pipelines)
    base, *others = measurements.outcomes
    measures = list(base.quality.per_query)
    rows = differences(measurements.outcomes, measures)
    limit, qrels = max(0, args.moved), measurements.qrels
    changes = {other.name: moved_queries(base, other, measures[0], qrels, limit=limit) for other in others}
    if args.report:
        _write_report(args, measurements)
    if args.json:
        table = [{**asdict(row), "difference": row.mean} for row in rows]
        moved = {name: [asdict(query) for query in queries] for name, queries in changes.items()}
        return out.json({"data": measurements.title, "base": base.name, "differences": table, "moved": moved})
    for i, (name, queries) in enumerate(changes.items()):
        if i:
            out.text()
        cells = []
        for row in (row for row in rows if row.other == name):
            interval, counts = f"{row.low:+.4f} to {row.high:+.4f}", f"{row.wins}/{row.ties}/{row.losses}"
            means = f"{row.base_mean:.4f}", f"{row.other_mean:.4f}", f"{row.mean:+.4f}"
            cells.append([row.measure, *means, interval, format_p(row.p_holm), counts])
        headers = ["measure", base.name, name, "difference", "95 % interval", "p (Holm)", "won/tied/lost"]
        out.table(headers, cells, stretch=0)
        out.text()
        out.text(style(f"{measures[0]}: largest changes from {base.name} to {name}", "bold"))
        _print_changes(queries, measurements.queries)
    return 0


def _print_changes(changes: list[MovedQuery], texts: dict[str, str]) -> None:
    if not changes:
        out.text("No changes.")
    for change in changes:
        values = f"{change.before:.4f} → {change.after:.4f}  query {change.query}"
        out.text(clip_words(f"{values}  {texts.get(change.query, '')}", width()))
        for document in change.documents[:3]:
            ranks = f"{document.before or 'absent'} → {document.after or 'absent'}"
            reason = f" because {document.why}" if document.why else ""
            out.text(wrap(f"{document.title or document.id} (grade {document.grade}): {ranks}{reason}", indent="    "))


def _measure(args: argparse.Namespace, pipelines: list[str]) -> Measurements:
    """Measure pipelines on a folder, or run files against judgments."""
    if args.qrels is not None:
        if pipelines:
            raise InputError("--qrels measures run files; pipelines need a BEIR folder. Pass only one of them.")
        return _measure_run_files(args)
    if len(args.data) != 1:
        raise InputError("Name one BEIR folder, or one or more run files with --qrels FILE.")
    if not pipelines:
        raise InputError("Name a pipeline: --pipeline rrf, or --pipeline mine.yaml.")
    measures = _measure_names(args)  # first, because a typo is found at once
    collection, systems, index, cache = open_collection(args, pipelines)
    judge = Judge(collection.qrels, measures)
    outcomes, options = [], {"index": index, "cache": cache, "fresh": args.fresh}
    for system in systems:
        with Progress(system.name) as progress:
            outcome = evaluate(system, collection, judge, progress=progress.update, **options)
        outcomes.append(outcome)
        if outcome.reused:
            _note(f"{outcome.name}: {outcome.reused} of {len(outcome.answers)} results are from an earlier run")
        if outcome.degraded:
            reason = next(iter(outcome.degraded.values()))
            _note(f"{outcome.name}: {len(outcome.degraded)} results are degraded, the first because: {reason}")
    title = f"{collection.name} ({collection.split})"
    models = tuple(dict.fromkeys(model for system in systems for model in system.models))
    return Measurements(title, outcomes, collection.qrels, dict(collection.queries), models)


def open_collection(args: argparse.Namespace, names: list[str]) -> tuple[Collection, list[System], Path | None, Path]:
    """Return the collection, the pipelines with these names, their index and the cache folder."""
    systems = find_systems(names)
    collection = read_collection(Path(args.data[0]), split=args.split)
    cache = args.cache or cache_folder("evaluation")
    cache.mkdir(parents=True, exist_ok=True)
    with Progress("indexing") as progress:
        index = index_for(systems, collection, cache, progress=progress.update)
    return collection, systems, index, cache


def _measure_run_files(args: argparse.Namespace) -> Measurements:
    if not args.data:
        raise InputError("Name at least one run file to measure against --qrels.")
    qrels, _ = read_qrels(args.qrels)
    judge = Judge(qrels, _measure_names(args))
    names = list_names([Path(file).name.removesuffix(".gz").removesuffix(".run") for file in args.data])
    outcomes = []
    for file, name in zip(args.data, names, strict=True):
        run = read_run(Path(file))
        if not set(run) & set(qrels):
            message = f"none of the {len(run)} queries in this file is judged in {args.qrels}; do the query ids match?"
            raise DataFormatError(message, file=str(file))
        quality = judge.quality(run)
        outcomes.append(Outcome(name, quality, run, {}))
        if quality.missing:
            rule = "count as 0" if args.complete else "are skipped, as in trec_eval; --complete counts them as 0"
            _note(f"{name}: {len(quality.missing)} judged queries are missing; they {rule}")
        if ignored := len(quality.unjudged):
            _note(f"{name}: {ignored} queries are not judged and do not count")
    return Measurements(args.qrels.name, outcomes, qrels, {})


def _measure_names(args: argparse.Namespace) -> Sequence[str]:
    names = (args.measures or "").split(",")
    return [measure_name(name) for name in names if name.strip()] or DEFAULT_MEASURES


def _write_report(args: argparse.Namespace, measurements: Measurements) -> None:
    installed = {dist.name for dist in metadata.distributions()}
    packages = [name for name in ("resift", "numpy", "tokenizers", "ir-measures") if name in installed]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    facts = {
        "date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        "command": f"resift {shlex.join(args.words)}",
        **({"models": ", ".join(measurements.models)} if measurements.models else {}),
        "versions": f"{versions}, Python {platform.python_version()}, {platform.machine()}",
    }
    page = report(measurements.title, measurements.outcomes, measurements.qrels, measurements.queries, facts=facts)
    atomic_write(args.report, page)
    _note(f"report: {args.report}")


def _note(text: str) -> None:
    out.note(f"resift: {text}")


def run_bench(args: argparse.Namespace) -> int:
    """Run benchmarks and return their exit code."""
    candidates = [Path.cwd(), *Path.cwd().parents, *Path(__file__).resolve().parents[3:4]]
    for folder in candidates if args.checkout is None else [args.checkout]:
        if (folder / "benchmarks" / "harness.py").is_file() and (folder / "src" / "resift").is_dir():
            root = folder.resolve()
            break
    else:
        problem = f"{args.checkout or 'This'} is not a checkout of Resift"
        advice = "Get the sources (git clone or sdist), then run there: resift bench --quick"
        raise InputError(f"{problem}, and benchmarks are not part of the installed package. {advice}")
    flags = [f"--{name}" for name in ("quick", "summary") if getattr(args, name)]
    paths = [str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    command = [sys.executable, "-m", "benchmarks", *args.names, *flags]
    return subprocess.run(command, cwd=root, env=env, check=False).returncode  # noqa: S603 - our own module
