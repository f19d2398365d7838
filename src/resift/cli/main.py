"""The command line: parse the arguments, run one command and print errors on one line."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import importlib
import io
import os
import re
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import NoReturn

from resift import __version__
from resift.cli.arguments import COMMANDS, add_options
from resift.errors import ResiftError, did_you_mean

_MODULES = {
    "ask": "search", "bench": "evaluate", "calibrate": "tune", "compare": "evaluate", "completion": "main",
    "demo": "doctor", "eval": "evaluate", "explain": "search", "fuse": "rerank", "graph": "index_command",
    "index": "index_command", "init": "config", "mcp": "serve", "record": "tune", "report": "batch",
    "store": "index_command",
}  # fmt: skip
"""Modules of commands that share a module. Every other command `x` has a module of the same name with `run_x`."""

_REMOVED = {"sbom": "Every release includes its SBOM as a file: resift-VERSION.cdx.json"}

_K_SYNONYMS = ("--limit", "--top", "--top-k", "--count", "-n")
_PYTHON_FLAG = re.compile(r"\b([a-z]+(?:_[a-z]+)*)=True\b(?:, --[a-z-]+)?")

EXIT_OK, EXIT_USAGE, EXIT_INTERRUPTED = 0, 2, 130

GRACE_S = 0.8  # time to clean up after Ctrl-C before the process is terminated


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # not every terminal can encode every character
    words = list(sys.argv[1:] if argv is None else argv)
    parser: argparse.ArgumentParser | None = None
    try:
        with end_on_interrupt() if argv is None else contextlib.nullcontext():
            args = _parse(words)
            parser = args.command_parser
            # Command modules import models and stores, which --help does not need.
            module = importlib.import_module(f"resift.cli.{_MODULES.get(args.command, args.command)}")
            code: int = getattr(module, f"run_{args.command}")(args)
            sys.stdout.flush()
    except ResiftError as exc:
        options = [] if parser is None else _option_names(parser)
        return _print_error(to_shell_terms(str(exc), options))
    except KeyboardInterrupt:
        _print_error("interrupted")
        if argv is None:
            # Do not wait for threads that load a model or write an index: an index survives a kill at any point.
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(EXIT_INTERRUPTED)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe (`| head`). Without this, Python prints an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except OSError as exc:
        reasons = {FileNotFoundError: "no such file or folder", IsADirectoryError: "this is a folder; pass a file"}
        reason = reasons.get(type(exc)) or exc.strerror or exc
        return _print_error(f"{exc.filename or 'I/O'}: {reason}")
    return code


def _print_error(message: str) -> int:
    from resift.cli.terminal import out

    return out.error(message)


def build_parser(only: str | None = None, *, for_completion: bool = False) -> argparse.ArgumentParser:
    """Return the parser; with `only`, load the options of that command alone. Only shtab sees argparse's own list."""
    overview = []
    for group, names in groupby(COMMANDS, key=lambda name: COMMANDS[name]["group"]):
        overview += [f"{group}:", *(f"  {name:<11} {COMMANDS[name]['summary']}" for name in names), ""]
    overview.append("resift COMMAND --help shows options and examples. Start with: resift demo")
    parser = _Parser(
        prog="resift",
        usage="resift COMMAND …",
        description="Re-sift search results: fuse, rerank, explain.",
        epilog="\n".join(overview),
        formatter_class=_HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"resift {__version__}")
    about = "the command" if for_completion else argparse.SUPPRESS
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, help=about, prog="resift")
    for name, texts in sorted(COMMANDS.items()):
        summary = texts["summary"]
        options = {"description": f"{summary[0].upper()}{summary[1:]}.", "epilog": texts["details"]}
        sub = commands.add_parser(name, help=summary, formatter_class=_HelpFormatter, **options)
        if only in (None, name):
            add_options(sub, texts, for_completion=for_completion)
            sub.set_defaults(command_parser=sub)
    return parser


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports wrong usage on one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith((".", "?")) else "."
        _print_error(f"{message}{end} See: {self.prog} --help")
        sys.exit(EXIT_USAGE)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A help formatter that wraps paragraphs to the terminal; indented examples and lists keep their lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for is_paragraph, run in groupby(text.splitlines(), key=lambda line: bool(line) and line[0] != " "):
            if is_paragraph:
                lines += textwrap.wrap(" ".join(run), width, break_on_hyphens=False)
            else:
                lines += [part for line in run for part in _wrap_indented(line, width)]
        return "\n".join(indent + line for line in lines)


def _wrap_indented(line: str, width: int) -> list[str]:
    """Wrap an indented line: keep its second column aligned, or continue a command with backslashes."""
    if len(line) <= width:
        return [line]
    # Two or more spaces separate a name from its description.
    _, gap, rest = line.lstrip(" ").partition("  ")
    column, wrap = len(line) - len(rest.lstrip(" ")), functools.partial(textwrap.wrap, line, break_on_hyphens=False)
    if gap and 3 * column <= 2 * width:
        return wrap(width, subsequent_indent=" " * column)
    *first, last = wrap(width - 2, subsequent_indent=" " * 6, break_long_words=False)
    return [*(f"{part} \\" for part in first), last]


def _parse(words: list[str]) -> argparse.Namespace:
    command = next((word for word in words if not word.startswith("-")), "")
    parser = build_parser(only=command)
    if not words:
        parser.print_help(sys.stderr)
        sys.exit(EXIT_USAGE)
    if command in _REMOVED:
        parser.error(f"The command {command!r} was removed. {_REMOVED[command]}")
    if command and command not in COMMANDS:
        parser.error(f"Unknown command {command!r}. {did_you_mean(command, COMMANDS)}")
    args, unknown = parser.parse_known_args(words, argparse.Namespace(words=words))
    if unknown:
        parser = getattr(args, "command_parser", parser)
        name, options = unknown[0].partition("=")[0], _option_names(parser)
        matches = [] if name in options else difflib.get_close_matches(name, options, n=1, cutoff=0.7)
        if name in _K_SYNONYMS and "-k" in options:
            matches = ["-k"]
        parser.error(f"Unknown argument {name}" + (f". Did you mean {matches[0]}?" if matches else ""))
    return args


def _option_names(parser: argparse.ArgumentParser) -> list[str]:
    return [*dict.fromkeys(re.findall(r"(?<![\w-])--?[a-z][\w-]*", parser.format_help()))]


def to_shell_terms(message: str, options: Collection[str]) -> str:
    """Return a message of the library with the flags of a command instead of Python arguments; others are marked."""

    def to_flag(match: re.Match[str]) -> str:
        name = f"--{match[1].replace('_', '-')}"
        return name if name in options else f"{match[1]}=True in Python"

    return re.sub(r"\ballow_local\b", "allow_local in Python", _PYTHON_FLAG.sub(to_flag, message))


@contextlib.contextmanager
def end_on_interrupt() -> Iterator[None]:
    """Terminate the process within a second of Ctrl-C, even if KeyboardInterrupt is lost or cleanup blocks.

    KeyboardInterrupt is lost in a callback that must not raise or in a library that catches all exceptions, and delayed
    by locks. A thread that reads a pipe, to which the signal also writes, works in all these cases.
    """
    has_default_handler = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    in_main_thread = threading.current_thread() is threading.main_thread()
    # Windows has no os.set_blocking for pipes before Python 3.12.
    if not has_default_handler or not in_main_thread or not hasattr(os, "set_blocking"):
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # a signal handler must never block
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="resift-interrupts", daemon=True).start()
    try:
        yield
    finally:
        # During interpreter shutdown, Ctrl-C would kill the process with the signal.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _watch(reader: int) -> None:
    while data := os.read(reader, 1):
        if data[0] == signal.SIGINT and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            time.sleep(GRACE_S)
            if os.isatty(2):
                os.write(2, b"\r\x1b[K\x1b[?25h")  # show the cursor that a progress bar may have hidden
            os.write(2, b"resift: interrupted\n")
            os._exit(EXIT_INTERRUPTED)


def run_completion(args: argparse.Namespace) -> int:
    """Print the completion script."""
    import shtab

    sys.stdout.write(shtab.complete(build_parser(for_completion=True), args.shell) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
