"""`resift calibrate`: fit a calibration on judged scores, and measure how reliable it is."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from resift.cli.arguments import add_json
from resift.cli.terminal import bar, print_json, print_table, print_text, style, width, wrap
from resift.errors import DataFormatError

if TYPE_CHECKING:
    from resift.evaluation.measures import Reliability

EXAMPLES = """\
JUDGED is JSONL with one judged hit per line: {"score": 3.2, "label": 1}. A label is true or false, or a
grade: above 0 is relevant. The table is measured on pairs that were not used to fit the calibration.

examples:
  resift calibrate judged.jsonl -o calibration.json
  resift calibrate judged.jsonl --method isotonic
"""


def configure_calibrate(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift calibrate`."""
    parser.epilog = EXAMPLES
    parser.add_argument("judged", type=Path, metavar="JUDGED", help="JSONL with score and label")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the calibration here")
    parser.add_argument(
        "--method",
        choices=("platt", "isotonic", "temperature"),
        default="platt",
        help="how to fit (default: platt)",
    )
    add_json(parser, "calibration and table")


def run_calibrate(args: argparse.Namespace) -> int:
    """Fit, show and write the calibration."""
    from resift.evaluation.measures import reliability
    from resift.ranking.shape import Isotonic, Platt, Temperature

    scores, relevant = _read_judgments(args.judged)
    methods: dict[str, type[Platt | Isotonic | Temperature]] = {
        "platt": Platt,
        "isotonic": Isotonic,
        "temperature": Temperature,
    }
    calibrator = methods[args.method]
    fitted = calibrator.fit(scores, relevant)
    measured = reliability(calibrator.fit, scores, relevant)
    if args.output:
        fitted.save(args.output)
    if args.json:
        print_json({"calibrator": fitted.to_dict(), "pairs": len(scores), **asdict(measured)})
        return 0
    _print_reliability(measured)
    held_out = "on held-out pairs" if measured.held_out else "on the fitted pairs: too few to hold any out"
    message = (
        f"{args.method}, {len(scores)} pairs ({sum(relevant)} relevant): calibration error "
        f"{measured.error:.3f}, Brier {measured.brier:.3f}, log loss {measured.log_loss:.3f} {held_out}."
    )
    print_text(wrap(message))
    if args.output:
        print_text(f"Wrote {args.output}")
    else:
        print_text(style(wrap("Nothing was written; -o FILE saves the calibration."), "dim"))
    return 0


def _read_judgments(path: Path) -> tuple[list[float], list[bool]]:
    from resift.evaluation.readers import json_rows

    scores: list[float] = []
    relevant: list[bool] = []
    for number, row in json_rows(path, expected='JSONL with "score" and "label"'):
        score, label = row.get("score"), row.get("label", row.get("relevant"))
        if isinstance(score, bool) or not isinstance(score, (int, float)) or not math.isfinite(score):
            raise DataFormatError('"score" must be a finite number', file=str(path), line=number)
        if not isinstance(label, (bool, int, float)) or math.isnan(label):
            raise DataFormatError('"label" must be true, false or a grade', file=str(path), line=number)
        scores.append(float(score))
        relevant.append(label > 0)
    return scores, relevant


def _print_reliability(measured: Reliability) -> None:
    size = 16 if width() >= 70 else 6
    rows = [
        (
            f"{each.low:.1f}–{each.high:.1f}",
            each.count,
            f"{each.predicted:.3f}",
            f"{each.observed:.3f}",
            bar(each.observed, 1.0, size),
        )
        for each in measured.bins
    ]
    print_table(["probability", "pairs", "predicted", "observed", ""], rows, stretch=0)
