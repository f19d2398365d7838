"""`resift mcp`: an index or a knowledge pack as tools for assistants, over standard input and output."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from resift.errors import InputError

EXAMPLES = """\
Started by the assistant, not by hand: put the command into its configuration. Tools: search, ask, rerank,
why, fetch; documents are resources. Nothing is written unless --allow-write. `resift serve --mcp` offers the
same over HTTP at /mcp.

examples:
  resift mcp --store notes.db
  resift mcp --store notes.db --pack graph.lbug
  resift mcp --store notes.db --allow-write
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift mcp`."""
    parser.epilog = EXAMPLES
    parser.add_argument("--store", type=Path, metavar="FILE", help="the index to search")
    parser.add_argument("--pack", type=Path, metavar="PACK", help="a knowledge pack to ask")
    parser.add_argument("--allow-write", action="store_true", help="offer add and delete as well")


def run(args: argparse.Namespace) -> int:
    """Serve until the client closes the pipe."""
    from resift.agent.knowledge_graph_agent import KnowledgeGraphAgent
    from resift.cli.render import print_note
    from resift.index import Index
    from resift.integrations.mcp import create_mcp_server

    if args.store is None and args.pack is None:
        raise InputError("Name what to search: --store FILE, --pack PACK, or both.")
    if sys.stdin.isatty():
        print_note("Waiting for an assistant: this command is for its configuration. Ctrl-D ends it.")
    with ExitStack() as stack:
        index = agent = None
        if args.store is not None:
            index = stack.enter_context(Index(args.store, read_only=not args.allow_write))
        if args.pack is not None:
            agent = stack.enter_context(KnowledgeGraphAgent(args.pack, enable_cross_encoder=True))
        server = create_mcp_server(index, agent=agent, allow_write=args.allow_write)
        try:
            server.run("stdio")
        except* BrokenPipeError:
            # The assistant closed the pipe before it was answered. Python 3.13 and later report that the rest
            # of the answer cannot be written when the stream of the MCP library is freed.
            sys.unraisablehook = _ignore_broken_pipe
    return 0


def _ignore_broken_pipe(unraisable: sys.UnraisableHookArgs) -> None:
    if not isinstance(unraisable.exc_value, BrokenPipeError):
        sys.__unraisablehook__(unraisable)
