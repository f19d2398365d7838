"""`resift calibrate`: judged scores into a calibrator, with a table that says how far to believe it."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resift.types import JsonObject

if TYPE_CHECKING:
    from resift.evaluation.reliability import Reliability

METHODS = ("platt", "isotonic", "temperature")

EXAMPLES = """\
JUDGED is JSONL with one judged hit a line: {"score": 3.2, "label": 1}. A label is true or false, or a grade:
above 0 is relevant. The table is measured on pairs that the calibrator was not fitted to.

examples:
  resift calibrate judged.jsonl -o calibration.json
  resift calibrate judged.jsonl --method isotonic
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift calibrate`."""
    parser.epilog = EXAMPLES
    parser.add_argument("judged", type=Path, metavar="JUDGED", help="JSONL with score and label")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the calibrator here")
    parser.add_argument("--method", choices=METHODS, default="platt", help="how to fit (default: platt)")
    parser.add_argument("--json", action="store_true", help="write calibrator and table as JSON")


def run(args: argparse.Namespace) -> int:
    """Fit, show and write."""
    from resift.cli.render import print_json
    from resift.evaluation.reliability import reliability
    from resift.ranking.shape import Isotonic, Platt, Temperature

    scores, relevant = _read(args.judged)
    kind: Any = {"platt": Platt, "isotonic": Isotonic, "temperature": Temperature}[args.method]
    fitted = kind.fit(scores, relevant)
    measured = reliability(kind.fit, scores, relevant)
    if args.output:
        fitted.save(args.output)
    if args.json:
        print_json({"calibrator": fitted.to_dict(), "pairs": len(scores), **_plain(measured)})
    else:
        _print(measured, len(scores), sum(relevant), args)
    return 0


def _read(path: Path) -> tuple[list[float], list[bool]]:
    from resift.errors import DataFormatError
    from resift.evaluation.readers import json_rows

    scores: list[float] = []
    relevant: list[bool] = []
    for number, row in json_rows(path, expected='JSONL with "score" and "label"'):
        score, label = row.get("score"), row.get("label", row.get("relevant"))
        if isinstance(score, bool) or not isinstance(score, (int, float)) or not math.isfinite(score):
            raise DataFormatError('"score" must be a finite number', file=str(path), line=number)
        if not isinstance(label, (bool, int, float)) or label != label:  # noqa: PLR0124 - NaN
            raise DataFormatError('"label" must be true, false or a grade', file=str(path), line=number)
        scores.append(float(score))
        relevant.append(label > 0)
    return scores, relevant


def _plain(measured: Reliability) -> JsonObject:
    from dataclasses import asdict

    return {**asdict(measured), "bins": [asdict(one) for one in measured.bins]}


def _print(measured: Reliability, pairs: int, good: int, args: argparse.Namespace) -> None:
    from resift.cli.render import bar, paint, print_text, prose, table, width

    size = 16 if width() >= 70 else 6
    rows = [
        (
            f"{one.low:.1f}–{one.high:.1f}",
            one.count,
            f"{one.said:.3f}",
            f"{one.true:.3f}",
            bar(one.true, 1.0, size),
        )
        for one in measured.bins
    ]
    print_text(table(["probability", "pairs", "said", "true", ""], rows, stretch=0))
    seen = "on unseen pairs" if measured.held_out else "on the fitted pairs: too few to hold any out"
    message = (
        f"{args.method}, {pairs} pairs ({good} relevant): calibration error {measured.error:.3f}, "
        f"Brier {measured.brier:.3f}, log loss {measured.log_loss:.3f} {seen}."
    )
    print_text(prose(message))
    if args.output:
        print_text(f"Written: {args.output}")
    else:
        print_text(paint(prose("Nothing was written; -o FILE keeps the calibrator."), "dim"))
