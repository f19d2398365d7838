"""What eval, compare and record share: their options, reading data, progress, notes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from resift.errors import DataFormatError, InputError
from resift.types import JsonObject

if TYPE_CHECKING:
    from resift.evaluation.readers import Collection
    from resift.evaluation.running import Outcome
    from resift.evaluation.systems import Subject


@dataclass(frozen=True)
class Measured:
    """Outcomes side by side, and the data they were measured on."""

    title: str
    outcomes: list[Outcome]
    qrels: dict[str, dict[str, int]]
    queries: dict[str, str]
    models: tuple[str, ...] = ()

    def plain(self, *, per_query: bool, complete: bool) -> JsonObject:
        """Return everything as JSON data."""
        return {
            "data": self.title,
            "judged": len(self.qrels),
            "results": [_plain(one, per_query=per_query, complete=complete) for one in self.outcomes],
        }


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Declare what is measured, on which data, and where work is kept."""
    parser.add_argument("--split", default="test", help="which qrels/<split>.tsv (default: test)")
    parser.add_argument("--qrels", type=Path, default=None, metavar="FILE", help="measure TREC run files")
    parser.add_argument(
        "--measures",
        default=None,
        metavar="LIST",
        help="for example nDCG@10,AP,RR,R@100,P@10 (that is the default)",
    )
    parser.add_argument(
        "--complete",
        action="store_true",
        help="count judged queries that a run file lacks as 0 (trec_eval -c); else they are left out",
    )
    parser.add_argument(
        "--cache", type=Path, default=None, metavar="DIR", help="keep indexes and answers here"
    )
    parser.add_argument("--fresh", action="store_true", help="forget earlier answers and ask again")


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Declare how results are shown."""
    parser.add_argument("--report", type=Path, default=None, metavar="FILE", help="write a report as HTML")
    parser.add_argument("--json", action="store_true", help="write the results as JSON")


def measured(args: argparse.Namespace, pipelines: list[str]) -> Measured:
    """Read the data and measure pipelines on a folder, or run files against judgements."""
    if args.qrels is not None:
        if pipelines:
            raise InputError(
                "--qrels measures run files; pipelines need a BEIR folder. Leave one of them out."
            )
        return _run_files(args)
    if len(args.data) != 1:
        raise InputError("Name one BEIR folder, or with --qrels FILE one or more run files.")
    if not pipelines:
        raise InputError("Name a pipeline: --pipeline rrf, or --pipeline mine.yaml.")
    return _pipelines(args, pipelines)


def opened(
    args: argparse.Namespace, pipelines: list[str]
) -> tuple[Collection, list[Subject], Path | None, Path]:
    """Return the collection, the pipelines, the index they search and the cache folder."""
    from resift._internal.cache_folders import cache_folder
    from resift.cli.render import Progress
    from resift.evaluation.readers import read_collection
    from resift.evaluation.running import index_for
    from resift.evaluation.systems import subjects_named

    subjects = subjects_named(pipelines)
    collection = read_collection(Path(args.data[0]), split=args.split)
    cache = args.cache or cache_folder("evaluation")
    cache.mkdir(parents=True, exist_ok=True)
    with Progress("indexing") as meter:
        index = index_for(subjects, collection, cache, progress=meter.update)
    return collection, subjects, index, cache


def note(text: str) -> None:
    """Tell people something beside the results."""
    from resift.cli.render import print_note

    print_note(f"resift: {text}")


def write_report(args: argparse.Namespace, found: Measured) -> None:
    """Write the HTML report and say where it is."""
    from resift._internal.atomic_files import atomic_write
    from resift.evaluation.report import report

    text = report(found.title, found.outcomes, found.qrels, found.queries, facts=_facts(args, found))
    atomic_write(args.report, text)
    note(f"report: {args.report}")


def _facts(args: argparse.Namespace, found: Measured) -> dict[str, str]:
    """Return how a report came about."""
    import platform
    import shlex
    from datetime import datetime
    from importlib import metadata

    packages = ("resift", "numpy", "tokenizers", "ir-measures")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages if _is_here(name))
    return {
        "date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        "command": f"resift {shlex.join(args.words)}",
        **({"models": ", ".join(found.models)} if found.models else {}),
        "versions": f"{versions}, Python {platform.python_version()}, {platform.machine()}",
    }


def _is_here(package: str) -> bool:
    from importlib import metadata

    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False


def _pipelines(args: argparse.Namespace, pipelines: list[str]) -> Measured:
    from resift.cli.render import Progress
    from resift.evaluation.measures import Judge
    from resift.evaluation.running import evaluate

    measures = _measures(args)
    collection, subjects, index, cache = opened(args, pipelines)
    judge = Judge(collection.qrels, measures)
    outcomes = []
    for subject in subjects:
        with Progress(subject.name) as meter:
            outcome = evaluate(
                subject, collection, judge, index=index, cache=cache, fresh=args.fresh, progress=meter.update
            )
        outcomes.append(outcome)
        _tell(outcome)
    title = f"{collection.name} ({collection.split})"
    models = tuple(dict.fromkeys(model for subject in subjects for model in subject.models))
    return Measured(title, outcomes, collection.qrels, dict(collection.queries), models)


def _run_files(args: argparse.Namespace) -> Measured:
    from resift.evaluation.measures import Judge
    from resift.evaluation.readers import read_qrels, read_run
    from resift.evaluation.running import Outcome

    if not args.data:
        raise InputError("Name at least one run file to measure against --qrels.")
    qrels, _ = read_qrels(args.qrels)
    judge = Judge(qrels, _measures(args))
    outcomes = []
    for file, name in zip(args.data, _names(args.data), strict=True):
        run = read_run(Path(file))
        if not set(run) & set(qrels):
            message = f"none of its {len(run)} queries is judged in {args.qrels}; do the query ids match?"
            raise DataFormatError(message, file=str(file))
        outcomes.append(Outcome(name, judge.quality(run), run, {}))
        _tell_gaps(outcomes[-1], complete=args.complete)
    return Measured(args.qrels.name, outcomes, qrels, {})


def _measures(args: argparse.Namespace) -> Sequence[str]:
    from resift.evaluation.measures import DEFAULT_MEASURES, measure_name

    if args.measures is None:
        return DEFAULT_MEASURES
    return [measure_name(name) for name in args.measures.split(",") if name.strip()] or DEFAULT_MEASURES


def _names(files: list[str]) -> list[str]:
    stems = [Path(file).name.removesuffix(".gz").removesuffix(".run") for file in files]
    return [stem if stems.count(stem) == 1 else f"{stem}#{at}" for at, stem in enumerate(stems, start=1)]


def _tell(outcome: Outcome) -> None:
    if outcome.reused:
        note(f"{outcome.name}: {outcome.reused} of {len(outcome.answers)} answers are from an earlier run")
    if outcome.degraded:
        reason = next(iter(outcome.degraded.values()))
        note(f"{outcome.name}: {len(outcome.degraded)} answers are degraded, the first because: {reason}")


def _tell_gaps(outcome: Outcome, *, complete: bool) -> None:
    quality = outcome.quality
    if quality.missing:
        how = (
            "they count as 0"
            if complete
            else "they are left out, as trec_eval does; --complete counts them as 0"
        )
        note(f"{outcome.name}: {len(quality.missing)} judged queries are missing; {how}")
    if quality.unjudged:
        note(f"{outcome.name}: {len(quality.unjudged)} queries are not judged and do not count")


def _plain(outcome: Outcome, *, per_query: bool, complete: bool) -> JsonObject:
    quality = outcome.quality
    data: JsonObject = {
        "name": outcome.name,
        "mean": quality.means(complete=complete),
        "mean_complete": quality.means(complete=True),
        "queries": len(next(iter(quality.per_query.values()))),
        "missing": list(quality.missing),
        "unjudged": list(quality.unjudged),
        "latency_ms": outcome.latency,
        "degraded": outcome.degraded,
        "reused": outcome.reused,
    }
    if per_query:
        data["per_query"] = {measure: dict(values) for measure, values in quality.per_query.items()}
    return data
