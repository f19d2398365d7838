"""Every benchmark in one run, each in a process of its own; then the summary.

python -m benchmarks                    # all but the hour-long ones, with peers
python -m benchmarks --quick            # a smoke run of each, nothing written
python -m benchmarks fusion stores      # only these
python -m benchmarks --summary          # only write RESULTS.md from what is there
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from benchmarks.harness import HERE
from tools.build_results import write_page

MODULES = (
    "fusion", "cross_encoder", "two_stage", "stores", "shape", "cold_start", "agent", "pipeline", "server",
    "kernels", "embedding", "calibration", "indexing", "same_order", "adapters",
)  # fmt: skip
LONG = ("batch", "scale", "default_table", "context")
"""These take an hour or more and need data, so they run only when they are named."""


def run_one(name: str, *, quick: bool) -> int:
    """Run one benchmark and return its exit code."""
    root = HERE.parent
    paths = [str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    words = [sys.executable, "-m", f"benchmarks.{name}", *(["--quick"] if quick else [])]
    return subprocess.run(words, cwd=root, env=env, check=False).returncode


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks; exit code 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(MODULES + LONG)}")
    parser.add_argument("--quick", action="store_true", help="a smoke run of each; nothing is written")
    parser.add_argument("--summary", action="store_true", help="only write RESULTS.md")
    args = parser.parse_args(argv)
    unknown = [name for name in args.names if name not in MODULES + LONG]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; known: {', '.join(MODULES + LONG)}")
    failed = []
    for name in () if args.summary else args.names or MODULES:
        print(f"── {name}", file=sys.stderr, flush=True)
        started = time.perf_counter()
        if run_one(name, quick=args.quick):
            failed.append(name)
        print(f"── {name}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
    if not args.quick:
        print("summary:", write_page(MODULES).name)
    if failed:
        print(f"failed or missed its target: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
