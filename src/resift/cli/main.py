"""The command line: parse, hand over to one module per command, turn errors into one line."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import io
import os
import re
import sys
import textwrap
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import NoReturn

from resift import __version__
from resift.cli.interrupts import EXIT_INTERRUPTED, ended_by_interrupt
from resift.cli.render import complain
from resift.errors import ResiftError, did_you_mean

COMMANDS = {
    "ask": "ask a question of an index or a knowledge pack, with sources",
    "batch": "embed, index, rerank or ask in bulk, resumable",
    "bench": "run the benchmarks of a source checkout",
    "calibrate": "turn judged scores into probabilities",
    "compare": "say whether a pipeline is better than another, or by chance",
    "completion": "write a completion script for bash, zsh or fish",
    "config": "check or show a pipeline file, or list every key",
    "demo": "see reranking work on a shipped sample",
    "doctor": "see what is installed, what works, and what to do next",
    "eval": "measure pipelines or run files: quality and latency",
    "explain": "see why a ranking is as it is, as a picture or a page",
    "fuse": "fuse ranked lists (JSONL or TREC run files) into one",
    "graph": "build a knowledge pack from linked texts, or look into one",
    "index": "index files and folders into one searchable file",
    "mcp": "offer an index to assistants as MCP tools",
    "record": "write down what stores and reranker say, for tune",
    "rerank": "put documents from a file or a pipe into a better order",
    "sbom": "list packages and model files with their digests (CycloneDX)",
    "search": "search an index and rerank what is found",
    "serve": "answer rerank, embedding and search requests over HTTP",
    "store": "build the indexes that searches use",
    "tune": "find the best fusion, depth and blend on a recording",
}
"""Command name -> one-line help. The module of `config check` is resift.cli.config, and so on."""

GROUPS = {
    "start here": ("demo", "doctor"),
    "rank": ("rerank", "fuse", "index", "search", "explain"),
    "answer": ("graph", "ask"),
    "serve": ("serve", "mcp", "batch"),
    "measure and tune": ("eval", "compare", "record", "tune", "calibrate", "bench"),
    "set up": ("config", "store", "completion", "sbom"),
}
"""How `resift --help` lists the commands."""

_COUNTS = ("--limit", "--top", "--top-k", "--count", "-n")
"""Options of other programs that mean -k."""

_PYTHON_FLAG = re.compile(r"\b([a-z]+(?:_[a-z]+)*)=True\b(?:, --[a-z-]+)?")
_PYTHON_CALL = re.compile(r"\ballow_local\b")
"""Advice of the library that no command has an option for."""

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


class _Help(argparse.RawDescriptionHelpFormatter):
    """Wraps prose to the terminal; examples and lists, which are indented, stay line by line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for prose, run in groupby(text.splitlines(), key=lambda line: bool(line) and line[0] != " "):
            if prose:
                lines += textwrap.wrap(" ".join(run), width, break_on_hyphens=False)
            else:
                lines += [part for line in run for part in _indented(line, width)]
        return "\n".join(indent + line for line in lines)


def _indented(line: str, width: int) -> list[str]:
    """Return an indented line within the width: a second column goes on below itself, a command too."""
    if len(line) <= width:
        return [line]
    # What stands before a gap of two spaces or more is a name, what follows its text.
    _, gap, rest = line.lstrip(" ").partition("  ")
    column = len(line) - len(rest.lstrip(" "))
    if gap and 3 * column <= 2 * width:
        return textwrap.wrap(line, width, subsequent_indent=" " * column, break_on_hyphens=False)
    options = {"subsequent_indent": "      ", "break_on_hyphens": False, "break_long_words": False}
    *first, last = textwrap.wrap(line, width - 2, **options)  # type: ignore[arg-type]
    return [*(f"{part} \\" for part in first), last]


class _Parser(argparse.ArgumentParser):
    """Tells wrong use in one line, as every other error."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message}. See: {self.prog} --help")
        sys.exit(EXIT_USAGE)


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser; with `only`, just that command's options are loaded."""
    parser = _Parser(
        prog="resift",
        usage="resift COMMAND …",
        description="Re-sift search results: fuse, rerank, explain.",
        epilog=_overview(),
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"resift {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, help=argparse.SUPPRESS, prog="resift"
    )
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(
            name,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=_Help,
        )
        if only in (None, name):
            module = importlib.import_module(f"resift.cli.{name}")
            module.configure(sub)
            sub.set_defaults(run=module.run, command_parser=sub)
    return parser


def _overview() -> str:
    lines = []
    for title, names in GROUPS.items():
        lines += [f"{title}:", *(f"  {name:<11} {COMMANDS[name]}" for name in names), ""]
    return "\n".join([*lines, "resift COMMAND --help shows options and examples. Start with: resift demo"])


def _parsed(words: list[str]) -> argparse.Namespace:
    asked = next((word for word in words if not word.startswith("-")), "")
    parser = build_parser(only=asked)
    if not words:
        parser.print_help(sys.stderr)
        sys.exit(EXIT_USAGE)
    if asked and asked not in COMMANDS:
        parser.error(f"Unknown command {asked!r}. {did_you_mean(asked, COMMANDS).rstrip('.')}")
    args, unknown = parser.parse_known_args(words, argparse.Namespace(words=words))
    if unknown:
        _refuse(unknown, getattr(args, "command_parser", parser))
    return args


def _refuse(unknown: list[str], parser: argparse.ArgumentParser) -> NoReturn:
    """Name the first argument that the command does not have, and the option that was probably meant."""
    name = unknown[0].partition("=")[0]
    options = _option_names(parser)
    meant = [name] if name in options else difflib.get_close_matches(name, options, n=1, cutoff=0.7)
    if name in _COUNTS and "-k" in options:
        meant = ["-k"]
    hint = f". Did you mean {meant[0]}?" if meant and meant != [name] else "."
    complain(f"Unknown argument {name}{hint} See: {parser.prog} --help")
    sys.exit(EXIT_USAGE)


def _option_names(parser: argparse.ArgumentParser) -> list[str]:
    """Return the options of a command, as its help lists them."""
    return [*dict.fromkeys(re.findall(r"(?<![\w-])--?[a-z][\w-]*", parser.format_help()))]


def in_shell_terms(message: str, options: Collection[str]) -> str:
    """Return an error of the library with flags instead of Python arguments: --text-only.

    Advice that the command has no option for is marked as Python.
    """

    def flag(match: re.Match[str]) -> str:
        name = f"--{match[1].replace('_', '-')}"
        return name if name in options else f"{match[1]}=True in Python"

    return _PYTHON_CALL.sub(lambda match: f"{match[0]} in Python", _PYTHON_FLAG.sub(flag, message))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no bars gets question marks
    words = list(sys.argv[1:] if argv is None else argv)
    parser: argparse.ArgumentParser | None = None
    try:
        with ended_by_interrupt() if argv is None else contextlib.nullcontext():
            args = _parsed(words)
            parser = args.command_parser
            code: int = args.run(args)
            sys.stdout.flush()
    except ResiftError as exc:
        options = [] if parser is None else _option_names(parser)
        return complain(in_shell_terms(str(exc), options))
    except KeyboardInterrupt:
        complain("interrupted")
        if argv is None:
            _end_now(EXIT_INTERRUPTED)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not an error, but Python would print one.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except OSError as exc:
        return complain(f"{exc.filename or 'I/O'}: {exc.strerror or exc}")
    return code


def _end_now(code: int) -> None:
    """End this process without waiting for threads: one may be loading a model or writing a large index.

    What was opened was closed on the way here, and an index takes a kill at any point.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
