"""`resift tune`: the best fusion, depth and blend on a recording, judged on queries it has not seen."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from resift.cli.options import add_repeated
from resift.types import JsonObject

if TYPE_CHECKING:
    from resift.evaluation.clicks import Fitted
    from resift.evaluation.differences import Difference
    from resift.evaluation.recording import Header, Recording
    from resift.evaluation.replay import Setting
    from resift.evaluation.tuning import Tuned

EXAMPLES = """\
Searches on the training queries and reports on held-out ones, next to the default setting. A recording of one
split is halved by a digest of the query ids; one of several splits needs --train and --test.

With --clicks the file is a pipeline or an index, and what users marked is enough: lines like
{"question": "rotate keys", "id": "keys.md#3", "good": true}. Only the weights of vectors and reranker are
fitted, close to the default, which stays where the marks are too few or do not agree.

examples:
  resift tune scifact.jsonl
  resift tune run.jsonl --train train --test test --budget 400 --yaml best.yaml
  resift tune docs.db --clicks thumbs.jsonl --yaml best.yaml
"""


FEW = 30
"""Training queries below which a tuned setting is not to be trusted much."""

MAX_P = 0.05
"""The p-value up to which a difference on held-out queries is taken as real."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift tune`."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "recording",
        type=Path,
        metavar="FILE",
        help="made by resift record; with --clicks: a pipeline or an index",
    )
    parser.add_argument("--clicks", type=Path, metavar="JSONL", help="marks of users: question, id, good")
    parser.add_argument("--train", default=None, metavar="SPLIT", help="search on this split")
    parser.add_argument("--test", default=None, metavar="SPLIT", help="report on this split")
    parser.add_argument("--held-out", type=float, default=0.5, help="held-out part of a single split (0.5)")
    parser.add_argument("--measure", default="nDCG@10", help="what to improve (nDCG@10)")
    parser.add_argument("--search", choices=("local", "grid"), default="local", help="how (local)")
    parser.add_argument("--budget", type=int, default=200, help="how many settings are tried (200)")
    parser.add_argument("--seed", type=int, default=1, help="of the random part (1)")
    add_repeated(parser, "--floor", "STORE=SCORE", "also try this floor of the gate; repeat it")
    parser.add_argument(
        "--yaml",
        type=Path,
        default=None,
        metavar="FILE",
        help="write the pipeline to use here: tuned, or the default where tuning found nothing better",
    )
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Tune and report on held-out queries."""
    from resift._internal.atomic_files import atomic_write
    from resift.cli.render import Progress
    from resift.evaluation.recording import read_recording
    from resift.evaluation.replay import default_setting
    from resift.evaluation.tuning import tune

    if args.clicks is not None:
        return _fit_clicks(args)
    _refuse_index(args.recording)
    recording = read_recording(args.recording)
    train, test = _halves(recording, args)
    with Progress("tuning", args.budget) as meter:
        tuned = tune(
            train,
            measure=args.measure,
            search=args.search,
            budget=args.budget,
            seed=args.seed,
            start=default_setting(recording.header),
            floors=[_floor(text) for text in args.floor],
            progress=meter.update,
        )
    row = _judged(test, default_setting(recording.header), tuned.best, args.measure)
    adopt = row.mean > 0 and row.p <= MAX_P
    if args.yaml:
        header = recording.header
        atomic_write(args.yaml, as_yaml(tuned.best, header) if adopt else default_yaml(header))
    show = _print_data if args.json else _print_report
    show(tuned, row, len(train.queries), adopt=adopt)
    if args.yaml and not args.json:
        _print_written(args.yaml, tuned=adopt)
    return 0


def _refuse_index(path: Path) -> None:
    from resift.cli.documents import refuse_index

    if path.is_file():
        with path.open("rb") as file:
            refuse_index(
                file.read(16), str(path), "a recording, made by: resift record; or add --clicks JSONL"
            )


def _fit_clicks(args: argparse.Namespace) -> int:
    from dataclasses import asdict
    from tempfile import TemporaryDirectory

    from resift._internal.atomic_files import atomic_write
    from resift.cli.render import Progress, print_json
    from resift.evaluation.clicks import fit, read_clicks
    from resift.evaluation.recording import read_recording, record
    from resift.evaluation.systems import subject_of
    from resift.ranking.adaptive_weights import Trust

    clicks = read_clicks(args.clicks)
    subject = subject_of(args.recording)
    with Progress("asking") as meter, TemporaryDirectory() as folder:
        out = Path(folder) / "clicks.jsonl"
        record(subject, [clicks], out, index=None, key="clicks", depth=Trust().most, progress=meter.update)
        recording = read_recording(out)
    fitted = fit(recording)
    adopt = not fitted.reason
    if args.yaml:
        header = recording.header
        atomic_write(args.yaml, as_yaml(fitted.best, header) if adopt else default_yaml(header))
    if args.json:
        print_json({**asdict(fitted), "best": fitted.best.plain(), "adopt": adopt})
        return 0
    _print_fitted(fitted)
    if args.yaml:
        _print_written(args.yaml, tuned=adopt)
    return 0


def _print_written(file: Path, *, tuned: bool) -> None:
    from resift.cli.render import print_text

    print_text(f"{file} has the {'tuned' if tuned else 'default'} pipeline.")


def _print_fitted(fitted: Fitted) -> None:
    from resift.cli.render import print_text

    print_text(f"{fitted.questions} questions, {fitted.good} hits marked good, {fitted.bad} bad")
    if fitted.error:
        print_text(f"gain on questions it was not fitted on: {fitted.gain:+.3f} ± {fitted.error:.3f}")
    if fitted.reason:
        print_text(f"The default stays: {fitted.reason}.")
        return
    reranker = "by evidence" if fitted.best.blend_weight is None else f"{fitted.best.blend_weight:g}"
    print_text(f"vectors count {fitted.best.vectors:g}, the reranker {reranker}")


def as_yaml(setting: Setting, header: Header) -> str:
    """Return the pipeline file of this setting."""
    import yaml

    data = _stores_and_k(header) | {"fusion": {"method": setting.method}}
    if setting.method == "rrf":
        data["fusion"]["k_param"] = setting.k_param
    if setting.method == "weighted":
        data["fusion"]["vectors"] = setting.vectors
    if setting.weights:
        data["fusion"]["weights"] = dict(zip(header.stores, setting.weights, strict=True))
    if setting.floor is not None:
        data["gate"] = dict(zip(("signal", "floor"), setting.floor, strict=True))
    if setting.depth:
        data["rerank"] = {"kind": header.reranker}
        if setting.method != "weighted":  # where the depth follows the scores
            data["rerank"]["depth"] = setting.depth
        data["guard"] = {"blend": setting.blend is not None, "do_no_harm": setting.guard}
        if setting.blend is not None:
            data["guard"] |= {"method": setting.blend, "neighbours": setting.neighbours}
            if setting.blend_weight is not None:
                data["guard"]["weight"] = setting.blend_weight
        if setting.blend == "promote":
            data["guard"]["temperature"] = setting.temperature
    return f"# Found by resift tune.{_missing(header)}\n{yaml.safe_dump(data, sort_keys=False)}"


def default_yaml(header: Header) -> str:
    """Return the default pipeline on the recorded stores: a file without options is the default."""
    import yaml

    data = _stores_and_k(header) | ({"rerank": {"kind": header.reranker}} if header.depth else {})
    return (
        f"# The default pipeline: resift tune found nothing better on held-out queries.{_missing(header)}\n"
        f"{yaml.safe_dump(data, sort_keys=False)}"
    )


def _stores_and_k(header: Header) -> JsonObject:
    stores = [dict(store) for store in header.configured]
    return ({"stores": stores} if stores else {}) | {"k": header.k}


def _missing(header: Header) -> str:
    return "" if header.configured else " Add `stores:`, named as they were recorded."


def _halves(recording: Recording, args: argparse.Namespace) -> tuple[Recording, Recording]:
    from resift.errors import InputError
    from resift.evaluation.tuning import split_by_hash, split_by_name

    if args.train is None and args.test is None:
        if len(recording.splits) > 1:
            known = ", ".join(recording.splits)
            raise InputError(f"This recording holds {known}. Say which is which: --train train --test test")
        return split_by_hash(recording, args.held_out)
    if args.train is None or args.test is None:
        raise InputError("Give both --train and --test, or neither to halve the queries.")
    return split_by_name(recording, args.train, args.test)


def _floor(text: str) -> tuple[str, float]:
    from resift.errors import InputError

    store, _, score = text.rpartition("=")
    try:
        least = float(score) if store else math.nan
    except ValueError:
        least = math.nan
    if not math.isfinite(least):
        raise InputError(f"--floor {text!r}: write STORE=SCORE, for example collection.vectors=0.5")
    return store, least


def _judged(test: Recording, before: Setting, after: Setting, measure: str) -> Difference:
    from resift.evaluation.differences import differences
    from resift.evaluation.measures import Judge
    from resift.evaluation.replay import replay
    from resift.evaluation.running import Outcome

    judge = Judge(test.qrels(), [measure])
    runs = {"default": replay(test, before), "tuned": replay(test, after)}
    outcomes = [Outcome(name, judge.quality(run), run, {}) for name, run in runs.items()]
    return differences(outcomes, judge.measures)[0]


def _print_data(tuned: Tuned, row: Difference, trained_on: int, *, adopt: bool) -> None:
    from dataclasses import asdict

    from resift.cli.render import print_json

    print_json(
        {
            "best": tuned.best.plain(),
            "adopt": adopt,
            "tried": tuned.tried,
            "train": {"queries": trained_on, "value": tuned.value},
            "held_out": {**asdict(row), "difference": row.mean},
        }
    )


def _print_report(tuned: Tuned, row: Difference, trained_on: int, *, adopt: bool) -> None:
    from resift.cli.render import print_text, prose, table

    tried = f"{tuned.tried} settings on {trained_on} training queries; best {row.measure} {tuned.value:.4f}"
    print_text(prose(tried))
    print_text(table(["knob", "best"], [[name, str(value)] for name, value in tuned.best.plain().items()]))
    print_text()
    print_text(f"On {row.queries} held-out queries:")
    rows = [
        ["default", f"{row.base_mean:.4f}", "", ""],
        ["tuned", f"{row.other_mean:.4f}", f"{row.mean:+.4f}", f"{row.p:.4f}"],
    ]
    print_text(table(["setting", row.measure, "difference", "p"], rows))
    if trained_on < FEW:
        few = f"{trained_on} judged queries are few: below {FEW} the default is hard to beat safely."
        print_text(prose(few))
    if row.mean <= 0:
        print_text("No better on queries it has not seen: keep the default.")
    elif not adopt:
        print_text(prose("The difference may well be chance: keep the default."))
    else:
        print_text(prose("Better on queries it has not seen: adopt the tuned setting."))
