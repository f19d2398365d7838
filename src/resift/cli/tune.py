"""`resift record`: record scores once; `resift tune`: find the best settings on a recording."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from resift._internal.files import atomic_write
from resift.cli.arguments import select
from resift.cli.evaluate import open_collection
from resift.cli.rerank import refuse_index
from resift.cli.terminal import Progress, bar, out, style, wrap
from resift.errors import DataFormatError, InputError, shell_path
from resift.evaluation import recording as recordings
from resift.evaluation import tuning
from resift.evaluation.click_log import ClickLogFit, fit_click_log, label_clicks, read_click_log
from resift.evaluation.evaluated_systems import system_from_file
from resift.evaluation.measures import Judge, reliability
from resift.evaluation.readers import Collection, json_rows, read_collection
from resift.evaluation.recording import Header, Recording, Setting
from resift.evaluation.runner import Difference, Outcome, answer_cache_key, differences
from resift.ranking.boosts import Boost, Recency
from resift.ranking.order_model import MAX_DEPTH
from resift.ranking.shape import Isotonic, Platt, Temperature
from resift.types import JsonObject

MIN_QUERIES = 30  # training queries for a reliable tuned setting
MAX_P = 0.05  # largest p-value of a significant difference on held-out queries


def run_record(args: argparse.Namespace) -> int:
    """Record the scores and print the number of new queries."""
    splits = args.split or ["test"]
    args.split = splits[0]
    args.data = [args.data]
    first, systems, index, _ = open_collection(args, [args.pipeline])
    collections = [first, *(read_collection(Path(args.data[0]), split=split) for split in splits[1:])]
    options = {"index": index, "key": answer_cache_key(systems[0], first), "depth": args.depth}
    with Progress("recording") as progress:
        new = recordings.record(systems[0], collections, args.out, progress=progress.update, **options)
    total = sum(len(collection.queries) for collection in collections)
    if args.json:
        out.json({"recording": str(args.out), "queries": total, "new": new})
    else:
        out.text(f"{args.out} has {total} queries, {new} of them new.")
        out.text(f"Next: resift tune {shell_path(args.out)}")
    return 0


def run_tune(args: argparse.Namespace) -> int:
    """Tune the setting and report its quality on held-out queries."""
    if args.clicks is not None and args.click_log is not None:
        raise InputError("Pass either --clicks or --click-log: ratings and clicks are fitted differently.")
    if args.click_log is not None:
        return _fit_click_log(args)
    if args.clicks is not None:
        recording = _record_clicks(args, tuning.read_clicks(args.clicks))
        return _fit_judged(args, tuning.fit_clicks(recording), recording.header)
    if args.recording.is_file():
        with args.recording.open("rb") as file:
            expected = "a recording, made by: resift record; or add --clicks or --click-log"
            refuse_index(file.read(16), str(args.recording), expected)
    recording = recordings.read_recording(args.recording)
    search_options = (args.train, args.test, args.held_out, args.budget)
    if len(recording.queries) < tuning.SMALL_RECORDING and search_options == (None,) * 4:
        return _fit_judged(args, tuning.fit_judged(recording, args.measure), recording.header)
    train, test = _split(recording, args)
    default = recordings.default_setting(recording.header)
    budget = 200 if args.budget is None else args.budget
    with Progress("tuning") as progress:
        options = {"budget": budget, "progress": progress.update, **select(args, "measure", "seed")}
        tuned = tuning.tune(train, start=default, **options)
    judge = Judge(test.qrels(), [args.measure])
    runs = {"default": recordings.replay(test, default), "tuned": recordings.replay(test, tuned.best)}
    row = differences([Outcome(name, judge.quality(run), run, {}) for name, run in runs.items()], judge.measures)[0]
    adopt = row.mean > 0 and row.p <= MAX_P
    if args.json:
        values = {"train": {"queries": len(train.queries), "value": tuned.value}, "tried": tuned.tried}
        held_out = {**asdict(row), "difference": row.mean}
        out.json({"best": tuned.best.plain(), "adopt": adopt, **values, "held_out": held_out})
    else:
        _print_report(tuned, row, len(train.queries), adopt=adopt)
    _write_yaml(args, tuned.best, recording.header, adopt=adopt)
    return 0


def _split(recording: Recording, args: argparse.Namespace) -> tuple[Recording, Recording]:
    if args.train is None and args.test is None:
        if len(recording.splits) > 1:
            splits = ", ".join(recording.splits)
            raise InputError(f"This recording has the splits {splits}. Name both: --train train --test test")
        return tuning.split_by_hash(recording, 0.5 if args.held_out is None else args.held_out)
    if args.train is None or args.test is None:
        raise InputError("Pass both --train and --test, or neither to divide the queries.")
    return tuning.split_by_name(recording, args.train, args.test)


def _print_report(tuned: tuning.TuningResult, row: Difference, trained_on: int, *, adopt: bool) -> None:
    out.text(wrap(f"{tuned.tried} settings on {trained_on} training queries; best {row.measure} {tuned.value:.4f}"))
    out.table(["option", "best"], [[name, str(value)] for name, value in tuned.best.plain().items()])
    out.text()
    out.text(f"On {row.queries} held-out queries:")
    tuned_row = ["tuned", f"{row.other_mean:.4f}", f"{row.mean:+.4f}", f"{row.p:.4f}"]
    out.table(["setting", row.measure, "difference", "p"], [["default", f"{row.base_mean:.4f}", "", ""], tuned_row])
    if trained_on < MIN_QUERIES:
        rule = f"with fewer than {MIN_QUERIES}, the default is hard to beat"
        out.text(wrap(f"Only {trained_on} judged queries: {rule}."))
    reason = "Not better on held-out queries" if row.mean <= 0 else "The difference is not significant"
    advice = f"{reason}: keep the default."
    out.text(wrap("Better on held-out queries: adopt the tuned setting." if adopt else advice))


def _fit_judged(args: argparse.Namespace, fit: tuning.ClickFit, header: Header) -> int:
    lines = [f"{fit.questions} queries, {fit.good} good hits, {fit.bad} bad ones"]
    if fit.error:
        lines.append(f"gain on held-out queries: {fit.gain:+.3f} ± {fit.error:.3f}")
    return _report_fit(args, fit, header, lines)


Fit = tuning.ClickFit | ClickLogFit


def _report_fit(args: argparse.Namespace, fit: Fit, header: Header, lines: list[str], **counts: int) -> int:
    adopt, best = not fit.reason, fit.best
    shifts = f"weight of vector search: {best.dense_shift:+g}, of the reranker: {best.reranker_shift:+g}"
    result = f"Better on held-out queries. {shifts}" if adopt else f"The default is kept: {fit.reason}."
    if args.json:
        out.json({**asdict(fit), **counts, "best": best.plain(), "adopt": adopt})
    else:
        out.text("\n".join([*lines, result]))
    _write_yaml(args, best, header, adopt=adopt)
    return 0


def _record_clicks(args: argparse.Namespace, clicks: Collection) -> Recording:
    """Run each user query once and return the recording."""
    system = system_from_file(args.recording)
    with Progress("searching") as progress, TemporaryDirectory() as folder:
        file = Path(folder) / "clicks.jsonl"
        recordings.record(system, [clicks], file, index=None, key="clicks", depth=MAX_DEPTH, progress=progress.update)
        return recordings.read_recording(file)


def _fit_click_log(args: argparse.Namespace) -> int:
    labels = label_clicks(read_click_log(args.click_log))
    recording = _record_clicks(args, labels.collection(args.click_log))
    fit = fit_click_log(recording, labels)
    lines = [f"{fit.queries} queries, {labels.impressions} impressions, {labels.clicks} clicks"]
    if labels.ignored_clicks:
        lines.append(wrap(f"{labels.ignored_clicks} clicks are ignored: they were at positions with unknown bias."))
    bias = ", ".join(f"{position}: {value:.2f}" for position, value in list(labels.propensities.items())[:10])
    low, high = fit.interval
    gain = f"{fit.gain:+.3f} ({low:+.3f} to {high:+.3f}), p = {fit.p:.4f}"
    lines += [wrap(f"attention by position: {bias}"), f"gain on {fit.held_out} held-out queries: {gain}"]
    counts = {"clicks": labels.clicks, "ignored_clicks": labels.ignored_clicks}
    return _report_fit(args, fit, recording.header, lines, **counts)


def _write_yaml(args: argparse.Namespace, best: Setting, header: Header, *, adopt: bool) -> None:
    if args.yaml:
        atomic_write(args.yaml, tuned_yaml(best, header) if adopt else default_yaml(header))
        if not args.json:
            out.text(f"{args.yaml} contains the {'tuned' if adopt else 'default'} pipeline.")


def tuned_yaml(setting: Setting, header: Header) -> str:
    """Return the pipeline file for a setting."""
    fusion: JsonObject = {"method": setting.method}
    if setting.method == "rrf":
        fusion["k_param"] = setting.k_param
    if setting.method == "weighted":
        fusion["dense_shift"] = setting.dense_shift
    if setting.weights:
        fusion["weights"] = dict(zip(header.stores, setting.weights, strict=True))
    data: JsonObject = {"fusion": fusion}
    if setting.depth:
        # Weighted fusion has an adaptive depth.
        depth = {} if setting.method == "weighted" else {"depth": setting.depth}
        data["rerank"] = {"kind": header.reranker, **depth}
        guard: JsonObject = {"blend": setting.blend is not None, "do_no_harm": setting.guard}
        if setting.blend is not None:
            guard |= {"method": setting.blend, "neighbors": setting.neighbors}
            if setting.blend_weight is not None:
                guard["weight"] = setting.blend_weight
            if setting.reranker_shift:
                guard["reranker_shift"] = setting.reranker_shift
        if setting.blend == "promote":
            guard["temperature"] = setting.temperature
        data["guard"] = guard
    return _to_yaml("Found by resift tune.", data, header, recordings.weigh_rules(header, setting))


def default_yaml(header: Header) -> str:
    """Return the default pipeline for the recorded stores; a file without options is the default."""
    data = {"rerank": {"kind": header.reranker}} if header.depth else {}
    comment = "The default pipeline: resift tune found nothing better on held-out queries."
    return _to_yaml(comment, data, header, header.rules)


def _to_yaml(comment: str, data: JsonObject, header: Header, rules: Iterable[Recency | Boost]) -> str:
    """Return a pipeline file with the recorded stores and k, these sections, and recency and boosts."""
    shape: JsonObject = {}
    for rule in rules:
        values = {name: value for name, value in asdict(rule).items() if value is not None}
        if isinstance(rule, Recency):
            shape["recency"] = values
        else:
            shape.setdefault("boosts", []).append(values)
    stores = [dict(store) for store in header.configured]
    file = {**({"stores": stores} if stores else {}), "k": header.k, **data, **({"shape": shape} if shape else {})}
    missing = "" if stores else " Add `stores:` with the recorded names."
    return f"# {comment}{missing}\n{yaml.safe_dump(file, sort_keys=False)}"


def run_calibrate(args: argparse.Namespace) -> int:
    """Fit, show and write the calibration."""
    scores, relevant = _read_judgments(args.judged)
    methods = {"platt": Platt, "isotonic": Isotonic, "temperature": Temperature}
    calibrator: type[Platt | Isotonic | Temperature] = methods[args.method]
    calibration = calibrator.fit(scores, relevant)
    report = reliability(calibrator.fit, scores, relevant)
    if args.output:
        calibration.save(args.output)
    if args.json:
        return out.json({"calibrator": calibration.to_dict(), "pairs": len(scores), **asdict(report)})
    rows = []
    for bucket in report.bins:
        shares = f"{bucket.predicted:.3f}", f"{bucket.observed:.3f}", bar(bucket.observed, 1.0, 16)
        rows.append((f"{bucket.low:.1f}–{bucket.high:.1f}", bucket.count, *shares))
    out.table(["probability", "pairs", "predicted", "observed", ""], rows, stretch=0)
    held_out = "on held-out pairs" if report.held_out else "on the fitted pairs: too few to hold any out"
    losses = f"{report.error:.3f}, Brier {report.brier:.3f}, log loss {report.log_loss:.3f} {held_out}"
    pairs = f"{len(scores)} pairs ({sum(relevant)} relevant)"
    out.text(wrap(f"{args.method}, {pairs}: calibration error {losses}."))
    unsaved = style(wrap("Nothing was written; -o FILE saves the calibration."), "dim")
    out.text(f"Wrote {args.output}" if args.output else unsaved)
    return 0


def _read_judgments(path: Path) -> tuple[list[float], list[bool]]:
    scores: list[float] = []
    relevant: list[bool] = []
    for line, row in json_rows(path, expected='JSONL with "score" and "label"'):
        score, label = row.get("score"), row.get("label", row.get("relevant"))
        if isinstance(score, bool) or not isinstance(score, (int, float)) or not math.isfinite(score):
            raise DataFormatError('"score" must be a finite number', file=str(path), line=line)
        if not isinstance(label, (bool, int, float)) or math.isnan(label):
            raise DataFormatError('"label" must be true, false or a grade', file=str(path), line=line)
        scores.append(float(score))
        relevant.append(label > 0)
    return scores, relevant
