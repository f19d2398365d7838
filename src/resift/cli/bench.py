"""`resift bench`: the benchmarks of a source checkout."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from resift.errors import InputError

EXAMPLES = """\
Benchmarks and the environments of the libraries they compare with live in the source checkout, not in the
installed package. Run this inside a checkout, or name one.

examples:
  resift bench --quick
  resift bench fusion stores
  resift bench --checkout ~/src/resift
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift bench`."""
    parser.epilog = EXAMPLES
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of them, all by default")
    parser.add_argument("--quick", action="store_true", help="a smoke run of each; nothing is written")
    parser.add_argument("--summary", action="store_true", help="only write benchmarks/RESULTS.md")
    parser.add_argument("--checkout", type=Path, default=None, metavar="DIR", help="the source checkout")


def run(args: argparse.Namespace) -> int:
    """Run them and return their exit code."""
    root = _checkout(args.checkout)
    flags = [f"--{name}" for name in ("quick", "summary") if getattr(args, name)]
    paths = [str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    words = [sys.executable, "-m", "benchmarks", *args.names, *flags]
    return subprocess.run(words, cwd=root, env=env, check=False).returncode  # noqa: S603 - our own module


def _checkout(given: Path | None) -> Path:
    here = Path(__file__).resolve()
    places = [given] if given is not None else [Path.cwd(), *Path.cwd().parents, *here.parents[3:4]]
    for place in places:
        if (place / "benchmarks" / "harness.py").is_file() and (place / "src" / "resift").is_dir():
            return place.resolve()
    raise InputError(
        f"{given or 'This'} is not a checkout of Resift, and benchmarks are not part of the installed "
        "package. Get the sources (git clone, or the sdist), then run there: resift bench --quick"
    )
