"""The command line: parse, hand over to one module per command, turn errors into one line."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from resift import __version__
from resift.cli.render import complain
from resift.errors import ResiftError

COMMANDS = {
    "ask": "ask a question of a knowledge pack, answered with sources",
    "bench": "run the benchmarks of a source checkout",
    "compare": "say whether a pipeline is better than another, or by chance",
    "config": "check or show a pipeline file, or list every key",
    "demo": "see reranking work on a shipped sample",
    "eval": "measure pipelines or run files: quality and latency",
    "fuse": "fuse ranked lists (JSONL or TREC run files) into one",
    "graph": "build a knowledge pack from linked texts, or look into one",
    "index": "index files and folders into one searchable file",
    "record": "write down what stores and reranker say, for tune",
    "search": "search an index and rerank what is found",
    "tune": "find the best fusion, depth and blend on a recording",
}
"""Command name -> one-line help. The module of `config check` is resift.cli.config, and so on."""

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser; with `only`, just that command's options are loaded."""
    parser = argparse.ArgumentParser(
        prog="resift",
        description="Re-sift search results: fuse, rerank, explain.",
        epilog="Start with: resift demo",
    )
    parser.add_argument("--version", action="version", version=f"resift {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if only in (None, name):
            module = importlib.import_module(f"resift.cli.{name}")
            module.configure(sub)
            sub.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    asked = next((word for word in words if word in COMMANDS), "")
    args = build_parser(only=asked).parse_args(words)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except ResiftError as exc:
        return complain(str(exc))
    except KeyboardInterrupt:
        complain("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not an error, but Python would print one.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except OSError as exc:
        return complain(f"{exc.filename or 'I/O'}: {exc.strerror or exc}")
    return code


if __name__ == "__main__":
    sys.exit(main())
