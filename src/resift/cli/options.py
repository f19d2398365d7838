"""Options that several commands share, checked while they are parsed."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

N = TypeVar("N", int, float)

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


def add_text_keys(parser: argparse._ActionsContainer) -> None:
    """Declare which fields of a record are its text."""
    parser.add_argument(
        "--text-key",
        action="append",
        metavar="KEY",
        help="the text fields of records, joined: title,body or _source.body; repeat it (default: the title "
        "and every other text field)",
    )


def at_least_one(text: str) -> int:
    """Read a whole number of 1 or more."""
    return _checked(text, int, lambda number: number >= 1, "a whole number of 1 or more")


def at_least_zero(text: str) -> int:
    """Read a whole number of 0 or more."""
    return _checked(text, int, lambda number: number >= 0, "a whole number of 0 or more")


def port(text: str) -> int:
    """Read a TCP port."""
    return _checked(text, int, lambda number: 0 <= number <= 65535, "a port from 0 to 65535")


def price(text: str) -> float:
    """Read an amount of money above 0."""
    return _checked(text, float, lambda amount: 0 < amount < math.inf, "an amount above 0, for example 0.08")


def number(text: str) -> float:
    """Read a finite number."""
    return _checked(text, float, math.isfinite, "a number, for example 0.5")


def _checked(text: str, read: Callable[[str], N], allowed: Callable[[N], bool], what: str) -> N:
    """Read a value as argparse wants it: what is not allowed is told in its own kind of error."""
    with contextlib.suppress(ValueError, OverflowError):
        if allowed(value := read(text)):
            return value
    raise argparse.ArgumentTypeError(f"{text} given; write {what}")


def add_scores(parser: argparse.ArgumentParser) -> None:
    """Declare the scale of the scores that are shown; a calibration implies probabilities."""
    parser.add_argument(
        "--scores",
        choices=("relevance", "probability", "raw"),
        default=None,
        help="relevance: from 0 to 1, falls with the rank (default); probability: the same, but every hit is "
        "read by the reranker for it; raw: the scores that decided the order",
    )
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="probabilities by this file of resift calibrate"
    )


def scale_of(args: argparse.Namespace) -> Literal["relevance", "probability", "raw"]:
    """Return the scale of the scores that are shown."""
    scale: Literal["relevance", "probability", "raw"] | None = args.scores
    return scale or ("relevance" if args.calibration is None else "probability")


def seconds_or_zero(text: str) -> float:
    """Read a time in seconds of 0 or more."""
    return _checked(text, float, lambda value: 0 <= value < math.inf, "seconds of 0 or more, for example 2")


def seconds(text: str) -> float:
    """Read a time in seconds above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number > 0 or math.isinf(number):
        raise argparse.ArgumentTypeError(f"{text} given; write seconds above 0, for example 0.5")
    return number
