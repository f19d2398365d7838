"""Tables of command-line options, and the options shared by several commands."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

N = TypeVar("N", int, float)
Scale = Literal["relevance", "probability", "raw"]

_PATHS = ("FILE", "DIR", "FOLDER", "PATH", "PACK", "OUT", "LOG", "JSONL", "JSONL|CSV")
"""Metavars whose values are converted to `Path`."""

_COMPLETE_FILES = {"bash": "_shtab_compgen_files", "zsh": "_files", "fish": "(__fish_complete_path (commandline -ct))"}


class Option(NamedTuple):
    """An argument, written as in a usage line: "-o --output FILE", "--quick", "query WORD...", "file [FILE]".

    An option without a value is a flag. An option with "..." may be repeated. The help text shows the default.
    """

    usage: str
    help: str
    type: Callable[[str], object] | None = None
    default: object = None
    choices: Iterable[str] | None = None
    required: bool = False

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Add the argument to a parser or a group."""
        names = self.usage.split()
        value = names.pop() if len(names) > 1 and not names[-1].startswith("-") else ""
        metavar = value.strip("[.]")
        options: dict[str, Any] = {"help": self.help, "default": self.default}
        if names[0].startswith("-"):
            options["required"] = self.required
            if "..." in value:
                options |= {"action": "append", "default": []}
        elif "..." in value or "[" in value:
            options["nargs"] = ("*" if "[" in value else "+") if "..." in value else "?"
        if not metavar and self.choices is None and names[0].startswith("-"):
            switch = argparse.BooleanOptionalAction if self.default else "store_true"
            options |= {"action": switch, "default": bool(self.default)}
        else:
            options["type"] = self.type or (Path if metavar in _PATHS else None)
            if self.choices is not None:
                options["choices"] = self.choices
            if metavar:
                options["metavar"] = metavar
            if self.default is not None:
                default = f"{self.default:g}" if isinstance(self.default, float) else self.default
                options["help"] += f" (default: {default})"
        action = parser.add_argument(*names, **options)
        if options.get("type") is Path or metavar in ("FILE", "DATA"):
            action.complete = _COMPLETE_FILES  # type: ignore[attr-defined]  # shtab reads it


Actions = Mapping[str, tuple[str, Sequence[Option]]]
"""Action -> (summary, options). The key is the name of the action, followed by its old names."""


def add_options(parser: argparse.ArgumentParser, table: Sequence[Option | str] | Actions) -> None:
    """Add the options of a command, or its actions with their options, to a parser.

    A string in the table starts a group of options.
    """
    if isinstance(table, Mapping):
        actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
        for names, (summary, options) in table.items():
            name, *aliases = names.split()
            description = f"{summary[0].upper()}{summary[1:]}."
            add_options(actions.add_parser(name, aliases=aliases, help=summary, description=description), options)
        return
    group: argparse._ActionsContainer = parser
    for option in table:
        if isinstance(option, str):
            group = parser.add_argument_group(option)
        else:
            option.add_to(group)


class Suggestions:
    """Choices offered by completion scripts. Other values are accepted here and checked by the library."""

    def __init__(self, load: Callable[[], Iterable[str]]) -> None:
        self._load = load

    def __contains__(self, value: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())


def score_scale(args: argparse.Namespace) -> Scale:
    """Return the scale of displayed scores; a calibration implies probabilities."""
    scale: Scale | None = args.scores
    return scale or ("relevance" if args.calibration is None else "probability")


def _numeric(read: Callable[[str], N], is_allowed: Callable[[N], bool], expected: str) -> Callable[[str], N]:
    def parse(text: str) -> N:
        with contextlib.suppress(ValueError, OverflowError):
            if is_allowed(value := read(text)):
                return value
        raise argparse.ArgumentTypeError(f"{text} is not valid; use {expected}")

    return parse


positive_int = _numeric(int, lambda value: value >= 1, "an integer ≥ 1")
non_negative_int = _numeric(int, lambda value: value >= 0, "an integer ≥ 0")
port = _numeric(int, lambda value: 0 <= value <= 65535, "a port from 0 to 65535")
price = _numeric(float, lambda value: 0 < value < math.inf, "an amount above 0, for example 0.08")
number = _numeric(float, math.isfinite, "a number, for example 0.5")
positive_seconds = _numeric(float, lambda value: 0 < value < math.inf, "a number of seconds above 0, for example 0.5")
non_negative_seconds = _numeric(float, lambda value: 0 <= value < math.inf, "a number of seconds ≥ 0, for example 2")

JSON = Option("--json", "write the result as JSON")
STORE_FILE = Option("--store FILE", "the index", default=Path("resift.db"))
DEADLINE = Option("--deadline S", "time limit for the command, in seconds", positive_seconds)
TEXT_KEYS = Option(
    "--text-key KEY...",
    "text fields to join, such as title,body or _source.body; may be repeated (default: the title and all "
    "other text fields)",
)
SCORES = (
    Option(
        "--scores",
        "relevance: from 0 to 1, decreasing with the rank (default); probability: the same, but the reranker "
        "scores every hit; raw: the scores that determined the order",
        choices=("relevance", "probability", "raw"),
    ),
    Option("--calibration FILE", "show probabilities, using this file written by resift calibrate"),
)
