"""Options of the commands, from `commands.toml`, as arguments of an argparse parser."""

from __future__ import annotations

import argparse
import contextlib
import math
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

N = TypeVar("N", int, float)
Scale = Literal["relevance", "probability", "raw"]

COMMANDS = tomllib.loads(Path(__file__).with_name("commands.toml").read_text(encoding="utf-8"))
"""Command -> group, summary, details, and options or actions."""

_SHARED: dict[str, Sequence[Any]] = {option[0]: option for option in COMMANDS.pop("shared")["options"]}
_COMPLETE_FILES = {"bash": "_shtab_compgen_files", "zsh": "_files", "fish": "(__fish_complete_path (commandline -ct))"}


def _numeric(read: Callable[[str], N], is_allowed: Callable[[N], bool], expected: str) -> Callable[[str], N]:
    def parse(text: str) -> N:
        with contextlib.suppress(ValueError, OverflowError):
            if is_allowed(value := read(text)):
                return value
        raise argparse.ArgumentTypeError(f"{text} is not valid; use {expected}")

    return parse


def _languages(text: str) -> tuple[str, ...] | str:
    codes = tuple(code.strip().lower() for code in text.split(","))
    if not all(code.isalpha() and len(code) in (2, 3) for code in codes):
        raise argparse.ArgumentTypeError(f"{text} is not valid; use codes such as en,de, or any")
    return "any" if codes == ("any",) else codes


_PATHS = ("FILE", "DIR", "FOLDER", "PATH", "PACK", "OUT", "LOG", "JSONL", "JSONL|CSV", "path")
_TYPES: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(_PATHS, Path),
    **dict.fromkeys(("K", "N", "TOKENS", "DEPTH"), _numeric(int, lambda value: value >= 1, "an integer ≥ 1")),
    "PORT": _numeric(int, lambda value: 0 <= value <= 65535, "a port from 0 to 65535"),
    "P": _numeric(float, lambda value: 0 < value < math.inf, "an amount above 0, for example 0.08"),
    "X": _numeric(float, math.isfinite, "a number, for example 0.5"),
    "S": _numeric(float, lambda value: 0 < value < math.inf, "a number of seconds above 0, for example 0.5"),
    "CODES": _languages,
    "str": str,
    "int": int,
    "float": float,
    "non_negative_int": _numeric(int, lambda value: value >= 0, "an integer ≥ 0"),
    "non_negative_seconds": _numeric(
        float, lambda value: 0 <= value < math.inf, "a number of seconds ≥ 0, for example 2"
    ),
}
"""Types by the placeholder of an option or by its property `type`."""


def add_options(parser: argparse.ArgumentParser, command: dict[str, Any], *, for_completion: bool = False) -> None:
    """Add the options of a command, or its actions with their options, to a parser."""
    if "actions" in command:
        actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
        for names, action in command["actions"].items():
            name, *aliases = names.split()
            summary = action["summary"]
            description = f"{summary[0].upper()}{summary[1:]}."
            subparser = actions.add_parser(name, aliases=aliases, help=summary, description=description)
            add_options(subparser, action, for_completion=for_completion)
        return
    group: argparse._ActionsContainer = parser
    for option in command["options"]:
        if isinstance(option, str) and option not in _SHARED:
            group = parser.add_argument_group(option)
            continue
        usage, help, *properties = _SHARED[option] if isinstance(option, str) else option
        _add_option(group, usage, help, {"for_completion": for_completion, **dict(*properties)})


def _add_option(parser: argparse._ActionsContainer, usage: str, help: str, properties: dict[str, Any]) -> None:
    names = usage.split()
    value = names.pop() if len(names) > 1 and not names[-1].startswith("-") else ""
    metavar, default = value.strip("[.]"), properties.get("default")
    choices = properties.get("choices")
    if properties["for_completion"] and "suggestions" in properties:
        choices = _suggested_values(properties["suggestions"])
    options: dict[str, Any] = {"help": help, "default": default}
    if names[0].startswith("-"):
        options["required"] = properties.get("required", False)
        if "..." in value:
            options |= {"action": "append", "default": []}
    elif "..." in value or "[" in value:
        options["nargs"] = ("*" if "[" in value else "+") if "..." in value else "?"
    if not metavar and choices is None and names[0].startswith("-"):
        switch = argparse.BooleanOptionalAction if default else "store_true"
        options |= {"action": switch, "default": bool(default)}
    else:
        options["type"] = _TYPES.get(properties.get("type", metavar))
        if choices is not None:
            options["choices"] = choices
        if metavar:
            options["metavar"] = metavar
        if default is not None:
            options["help"] += f" (default: {f'{default:g}' if isinstance(default, float) else default})"
    action = parser.add_argument(*names, **options)
    if options.get("type") is Path or metavar in ("FILE", "DATA"):
        action.complete = _COMPLETE_FILES  # type: ignore[attr-defined]  # shtab reads it


def _suggested_values(values: list[str] | Literal["cross-encoders", "fusion methods"]) -> Iterable[str]:
    """Return the values that completion scripts offer. The parser accepts others, which the library checks."""
    if values == "cross-encoders":
        from resift.models.registry import model_ids

        return model_ids("cross-encoder")
    if values == "fusion methods":
        from resift.plugins import available_fusions

        return available_fusions()
    return values


def select(source: object, *names: str) -> dict[str, Any]:
    """Return attributes by name: options of a command as arguments of a function, or parts of a result as JSON."""
    return {name: getattr(source, name) for name in names}


def score_scale(args: argparse.Namespace) -> Scale:
    """Return the scale of displayed scores; a calibration implies probabilities."""
    scale: Scale | None = args.scores
    return scale or ("relevance" if args.calibration is None else "probability")
