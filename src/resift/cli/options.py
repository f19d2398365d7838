"""Options that several commands share, checked while they are parsed."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Literal

DEFAULT_STORE = "resift.db"


def add_store(parser: argparse.ArgumentParser) -> None:
    """Declare which index is meant."""
    parser.add_argument(
        "--store",
        type=Path,
        default=Path(DEFAULT_STORE),
        metavar="FILE",
        help=f"the index (default: {DEFAULT_STORE})",
    )


def add_count(parser: argparse._ActionsContainer, option: str, default: int, help: str) -> None:
    """Declare a whole number of 1 or more."""
    parser.add_argument(
        option, type=at_least_one, default=default, metavar="N", help=f"{help} (default: {default})"
    )


def add_repeated(parser: argparse._ActionsContainer, option: str, metavar: str, help: str) -> None:
    """Declare an option that may be given several times."""
    parser.add_argument(option, action="append", default=[], metavar=metavar, help=help)


def at_least_one(text: str) -> int:
    """Read a whole number of 1 or more."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} given; write a whole number of 1 or more")
    return number


def at_least_zero(text: str) -> int:
    """Read a whole number of 0 or more."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} given; write a whole number of 0 or more")
    return number


def price(text: str) -> float:
    """Read an amount of money above 0."""
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not amount > 0 or math.isinf(amount):
        raise argparse.ArgumentTypeError(f"{text} given; write an amount above 0, for example 0.08")
    return amount


def number(text: str) -> float:
    """Read a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} given; write a number, for example 0.5")
    return value


def add_scores(parser: argparse.ArgumentParser) -> None:
    """Declare on which scale scores are shown; a calibration asks for probabilities by itself."""
    parser.add_argument(
        "--scores",
        choices=("raw", "probability"),
        default=None,
        help="probability: from 0 to 1, by the calibration that ships with the model (default: raw)",
    )
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="probabilities by this file of resift calibrate"
    )


def scale_of(args: argparse.Namespace) -> Literal["raw", "probability"]:
    """Return which scale was asked for."""
    if args.scores == "raw" or (args.scores is None and args.calibration is None):
        return "raw"
    return "probability"


def seconds(text: str) -> float:
    """Read a time in seconds above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number > 0 or math.isinf(number):
        raise argparse.ArgumentTypeError(f"{text} given; write seconds above 0, for example 0.5")
    return number
