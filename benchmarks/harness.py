"""Shared by all benchmarks: options, peers in their own environments, timing, result files.

Every benchmark has `main(argv)`, takes its options from `option_parser` and hands its results to `report`.

A peer is a Python script that reads one JSON request per line on stdin and answers one JSON line per
request on stdout. It runs in a virtual environment that `peer_env` creates under benchmarks/.envs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
ENVS = HERE / ".envs"
RESULTS = HERE / "results"


def option_parser(name: str, doc: str | None, *, parts: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark: --quick, --results and, with parts, --only."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run; writes no results")
    parser.add_argument("--results", default=name, metavar="NAME", help="name of the result file")
    if parts:
        parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), help="which parts")
    return parser


def report(
    args: argparse.Namespace, data: Mapping[str, Any], *, packages: Sequence[str] = (), keep: bool = False
) -> None:
    """Print the results as JSON and write the result file, except in a quick run.

    `keep` keeps the parts of the last result file that this run did not measure.
    """
    found = {**data, "versions": {**versions(packages), **data.get("versions", {})}}
    if not args.quick:
        earlier = read_results(args.results) if keep else {}
        write_results(args.results, {**earlier, **found})
    print(json.dumps({"machine": machine(), **found}, indent=2))


def read_results(name: str) -> dict[str, Any]:
    """Return the parts of a result file, or nothing if there is no such file."""
    path = RESULTS / f"{name}.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {key: value for key, value in found.items() if key not in ("benchmark", "date", "machine")}


def machine() -> dict[str, Any]:
    """Describe this machine: processor, cores usable by this process, memory, system, Python."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "processor": _from_proc("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "memory": _from_proc("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        # Far above the number of cores: others were at work too, so only ratios can be trusted.
        "load": [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None,
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the installed version of each package, or "absent"."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def peer_env(name: str, requirements: Sequence[str], *, fresh: bool = False) -> Path:
    """Return the Python of a virtual environment with these requirements, made once and then kept.

    Requirements are installed one after another in the order given, so that a large one can be pinned first.
    `fresh` makes it anew: a checkout that is installed changes while its path stays the same.
    """
    folder = ENVS / name
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wanted = hashlib.sha256("\n".join(requirements).encode()).hexdigest()
    mark = folder / "resift-requirements"
    if not fresh and python.exists() and mark.exists() and mark.read_text() == wanted:
        return python
    venv.create(folder, with_pip=True, clear=True)
    for requirement in requirements:
        print(f"installing {requirement} for {name} …", file=sys.stderr)
        subprocess.run([python, "-m", "pip", "install", "-q", requirement], check=True)
    mark.write_text(wanted)
    return python


class Peer:
    """A competitor in its own process and environment, asked one JSON line at a time."""

    def __init__(self, python: Path | str, script: Path, *args: str, env: Mapping[str, str] | None = None):
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            [str(python), "-P", str(script), *args],  # peers/fusion.py must not shadow a module
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Send one request and wait for its answer."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries like to print; an answer is always an object
                return json.loads(line)
        raise RuntimeError(f"peer ended with code {self._process.wait()}")

    def rss_mb(self) -> float:
        """Return the peer's resident memory, or NaN where the system does not tell."""
        return rss_mb(self.pid)

    def close(self) -> None:
        """End the peer."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait(timeout=30)
        if self._process.stdout:
            self._process.stdout.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def answer_forever(handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Serve the other side of `Peer`: one JSON answer per JSON line, until stdin closes."""
    for line in sys.stdin:
        print(json.dumps(handle(json.loads(line))), flush=True)


def descendants(pid: int) -> list[int]:
    """Return the processes below a process (Linux)."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    below, waiting = [], [pid]
    while waiting:
        started = children.get(waiting.pop(), [])
        below += started
        waiting += started
    return below


def rss_mb(pid: int | str = "self") -> float:
    """Return the resident memory of a process in MB (Linux), or NaN."""
    value = _from_proc(f"/proc/{pid}/status", "VmRSS")
    return round(int(value.split()[0]) / 1024, 1) if value else float("nan")


def median_ms(fn: Callable[[], Any], repeat: int) -> float:
    """Return the median time of `repeat` calls in milliseconds, after one call that is not counted."""
    fn()
    return statistics.median(once_ms(fn) for _ in range(repeat))


def once_ms(fn: Callable[[], Any]) -> float:
    """Return the time of one call in milliseconds."""
    started = time.perf_counter()
    fn()
    return (time.perf_counter() - started) * 1000


def interleaved_ms(subjects: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return each subject's median over rounds in which all take turns, so that noise hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for fn in subjects.values():
        fn()
    for number in range(rounds):
        names = list(subjects)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            times[name].append(once_ms(subjects[name]))
    return {name: round(statistics.median(values), 4) for name, values in times.items()}


def write_results(name: str, data: Mapping[str, Any]) -> Path:
    """Write benchmarks/results/<name>.json with the machine beside the data; return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    told = {"benchmark": name, "date": time.strftime("%Y-%m-%d"), "machine": machine(), **data}
    path.write_text(json.dumps(told, indent=2, sort_keys=True) + "\n")
    return path


def _from_proc(file: str, key: str) -> str:
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
