"""Options that several commands share, validated while they are parsed."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, TypeVar

N = TypeVar("N", int, float)
Scale = Literal["relevance", "probability", "raw"]

DEFAULT_STORE = "resift.db"


class Suggestions:
    """Choices that completion scripts offer. Other values are accepted here and checked by the library."""

    def __init__(self, load: Callable[[], Iterable[str]]) -> None:
        self._load = load

    def __contains__(self, value: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())


def add_store(parser: argparse.ArgumentParser) -> None:
    """Declare the index."""
    parser.add_argument(
        "--store",
        type=Path,
        default=Path(DEFAULT_STORE),
        metavar="FILE",
        help=f"the index (default: {DEFAULT_STORE})",
    )


def add_count(parser: argparse._ActionsContainer, option: str, default: int, help: str) -> None:
    """Declare an integer of 1 or more."""
    parser.add_argument(
        option, type=positive_int, default=default, metavar="N", help=f"{help} (default: {default})"
    )


def add_repeated(parser: argparse._ActionsContainer, option: str, metavar: str, help: str) -> None:
    """Declare an option that may be repeated."""
    parser.add_argument(option, action="append", default=[], metavar=metavar, help=help)


def add_json(parser: argparse._ActionsContainer, what: str = "the result") -> None:
    """Declare --json."""
    parser.add_argument("--json", action="store_true", help=f"write {what} as JSON")


def add_deadline(parser: argparse._ActionsContainer) -> None:
    """Declare --deadline."""
    parser.add_argument(
        "--deadline", type=positive_seconds, metavar="S", help="time limit of the command, in seconds"
    )


def add_text_keys(parser: argparse._ActionsContainer) -> None:
    """Declare the text fields of records."""
    parser.add_argument(
        "--text-key",
        action="append",
        metavar="KEY",
        help="text fields of records, joined: title,body or _source.body; may be repeated (default: the "
        "title and all other text fields)",
    )


def add_scores(parser: argparse.ArgumentParser) -> None:
    """Declare the scale of displayed scores; a calibration implies probabilities."""
    parser.add_argument(
        "--scores",
        choices=("relevance", "probability", "raw"),
        default=None,
        help="relevance: from 0 to 1, decreasing with the rank (default); probability: the same, but the "
        "reranker scores every hit; raw: the scores that determined the order",
    )
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="probabilities from this file of resift calibrate"
    )


def score_scale(args: argparse.Namespace) -> Scale:
    """Return the scale of displayed scores."""
    scale: Scale | None = args.scores
    return scale or ("relevance" if args.calibration is None else "probability")


def positive_int(text: str) -> int:
    """Parse an integer of 1 or more."""
    return _parse(text, int, lambda number: number >= 1, "an integer of 1 or more")


def non_negative_int(text: str) -> int:
    """Parse an integer of 0 or more."""
    return _parse(text, int, lambda number: number >= 0, "an integer of 0 or more")


def port(text: str) -> int:
    """Parse a TCP port."""
    return _parse(text, int, lambda number: 0 <= number <= 65535, "a port from 0 to 65535")


def price(text: str) -> float:
    """Parse an amount of money above 0."""
    return _parse(text, float, lambda amount: 0 < amount < math.inf, "an amount above 0, for example 0.08")


def number(text: str) -> float:
    """Parse a finite number."""
    return _parse(text, float, math.isfinite, "a number, for example 0.5")


def positive_seconds(text: str) -> float:
    """Parse seconds above 0."""
    return _parse(text, float, lambda value: 0 < value < math.inf, "seconds above 0, for example 0.5")


def non_negative_seconds(text: str) -> float:
    """Parse seconds of 0 or more."""
    return _parse(text, float, lambda value: 0 <= value < math.inf, "seconds of 0 or more, for example 2")


def _parse(text: str, read: Callable[[str], N], is_allowed: Callable[[N], bool], what: str) -> N:
    with contextlib.suppress(ValueError, OverflowError):
        if is_allowed(value := read(text)):
            return value
    raise argparse.ArgumentTypeError(f"{text} given; write {what}")
