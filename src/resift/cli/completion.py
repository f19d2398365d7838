"""`resift completion`: a completion script for a shell, generated from the parser by shtab."""

from __future__ import annotations

import argparse
import sys

EXAMPLES = """\
examples:
  resift completion bash > ~/.local/share/bash-completion/completions/resift
  resift completion zsh > "${fpath[1]}/_resift"
  resift completion fish > ~/.config/fish/completions/resift.fish
"""


def configure_completion(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift completion`."""
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def run_completion(args: argparse.Namespace) -> int:
    """Write the script."""
    import shtab

    from resift.cli.main import build_parser

    sys.stdout.write(shtab.complete(build_parser(for_completion=True), args.shell) + "\n")
    return 0
