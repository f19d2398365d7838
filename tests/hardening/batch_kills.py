"""Kill bulk jobs at random moments, on both engines: the output must be an undisturbed one, byte for byte.

python -m tests.hardening.batch_kills            # 50 kills in all
python -m tests.hardening.batch_kills --quick    # 5, nothing written

The work is real: `resift batch embed` with the default model on short passages, some of which cannot be done.
A worker is killed with SIGKILL wherever it is; the driver too, and then the same command is given again; a
disk is full when it is (a small tmpfs; where none can be mounted, files that may not grow), and then is not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.hardening.report import RESULTS, write_results

# engine -> how many of each kind; 50 in all
PLAN = {"local": {"worker": 18, "driver": 11, "full disk": 6}, "ray": {"worker": 10, "driver": 3, "full disk": 2}}
QUICK = {"local": {"worker": 2, "driver": 1, "full disk": 1}, "ray": {"worker": 1, "driver": 0, "full disk": 0}}
SHARD_ROWS = 20
LONGEST_END_S = 120
"""How long processes may outlive a killed driver before that counts as a fault."""


def write_input(folder: Path, rows: int) -> Path:
    """Write passages of which every 97th is null and every 89th blank."""
    draw = random.Random(1)
    words = ["river", "stone", "bread", "honey", "glass", "winter", "letter", "garden", "music", "paper"]
    texts = [f"{' '.join(draw.choices(words, k=draw.randrange(8, 17)))} {at}." for at in range(rows)]
    given = [None if at % 97 == 5 else " " if at % 89 == 7 else text for at, text in enumerate(texts)]
    path = folder / "in.parquet"
    pq.write_table(pa.table({"id": [f"p{at}" for at in range(rows)], "text": pa.array(given, pa.string())}), path)
    return path


def command(source: Path, out: Path, engine: str) -> list[str]:
    """Return the command that every run gives."""
    return [
        sys.executable, "-m", "resift.cli.main", "batch", "embed", str(source), "-o", str(out),
        "--engine", engine, "--workers", "2", "--shard-rows", str(SHARD_ROWS), "--json",
    ]  # fmt: skip


def digests(folder: Path) -> dict[str, str]:
    """Return what a run made: every file that is not hidden, by its digest."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if not path.name.startswith(".")
    }


def accounted(folder: Path, rows: int) -> bool:
    """Say whether each input row is there exactly once: written, or listed as failed."""
    written = Counter(
        row for part in folder.glob("part-*.parquet") for row in pq.read_table(part, columns=["row"])["row"].to_pylist()
    )
    aside = folder / "failed.parquet"
    if aside.exists():
        written.update(pq.read_table(aside)["row"].to_pylist())
    return sorted(written.elements()) == list(range(rows))


class Job:
    """One driver process, and what it started."""

    def __init__(self, words: list[str], *, room: int | None = None) -> None:
        limit = None if room is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        self.process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limit,  # noqa: PLW1509 - there are none
        )

    def running(self) -> bool:
        return self.process.poll() is None

    def workers(self) -> list[int]:
        """Return the processes that do shards: children that import the work, or Ray's actors for it."""
        found = []
        for pid in descendants(self.process.pid):
            with suppress(OSError):
                told = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if "spawn_main" in told or "MapWorker" in told:
                    found.append(pid)
        return found

    def kill(self) -> bool:
        """Kill the driver alone, with SIGKILL; say whether all that it started ended by itself."""
        started = descendants(self.process.pid)
        self.process.kill()
        self.process.communicate()
        until = time.monotonic() + LONGEST_END_S
        while time.monotonic() < until:
            if not any(alive(pid) for pid in started):
                return True
            time.sleep(0.1)
        for pid in filter(alive, started):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return False

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and the errors."""
        _, errors = self.process.communicate(timeout=900)
        return self.process.returncode, errors


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Trial:
    """Jobs of one engine that are disturbed until their kills are used up, each compared when it is done."""

    def __init__(self, engine: str, source: Path, reference: dict[str, str], rows: int, draw: random.Random) -> None:
        self.engine, self.source, self.reference, self.rows, self.draw = engine, source, reference, rows, draw
        self.done: Counter[str] = Counter()
        self.jobs = self.drivers = 0
        self.wrong: list[str] = []

    def kills(self, workers: int, drivers: int) -> None:
        """Kill so many workers and drivers, in a random order, over as many jobs as it takes."""
        todo = ["worker"] * workers + ["driver"] * drivers
        self.draw.shuffle(todo)
        while todo:
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "out"
                job = self._start(out)
                while job.running():
                    # From the first moments of a process to the middle of its shards. On a busy machine
                    # seconds alone would hit none but processes that have only just begun.
                    if self.draw.random() < 0.5:
                        self._wait_for_shards(job, out, self.draw.randrange(1, 4))
                    self._wait(job, self.draw.uniform(0.2, 4))
                    if not todo or not job.running():
                        break
                    kind = todo[-1]
                    if kind == "driver":
                        if not job.kill():
                            self.wrong.append("processes outlived their driver")
                        self._count(todo)
                        job = self._start(out)
                    elif victims := job.workers():
                        with suppress(ProcessLookupError):
                            os.kill(self.draw.choice(victims), signal.SIGKILL)
                            self._count(todo)
                self._judge(job, out)

    def full_disks(self, count: int) -> None:
        """Let the disk be full in the middle of a job, then not: so many times."""
        for _ in range(count):
            with SmallDisk(self.draw.randrange(100, 700)) as disk:
                out = disk.folder / "out"
                job = self._start(out, room=disk.file_limit)
                code, errors = job.end()
                self.done["full disk"] += 1
                if code == 0 or not ("No space" in errors or "too large" in errors):
                    self.wrong.append(f"full disk: exit {code}, said {errors[-300:]!r}")
                disk.grow()
                self._judge(self._start(out), out)

    def _start(self, out: Path, room: int | None = None) -> Job:
        self.drivers += 1
        return Job(command(self.source, out, self.engine), room=room)

    def _wait(self, job: Job, seconds: float) -> None:
        until = time.monotonic() + seconds
        while job.running() and time.monotonic() < until:
            time.sleep(0.05)

    def _wait_for_shards(self, job: Job, out: Path, more: int) -> None:
        before, until = len(list(out.glob("part-*"))), time.monotonic() + LONGEST_END_S
        while job.running() and time.monotonic() < until and len(list(out.glob("part-*"))) < before + more:
            time.sleep(0.05)

    def _count(self, todo: list[str]) -> None:
        self.done[todo.pop()] += 1

    def _judge(self, job: Job, out: Path) -> None:
        code, errors = job.end()
        self.jobs += 1
        if code != 1:  # 1: rows failed, as they should
            self.wrong.append(f"exit {code}: {errors[-300:]}")
        elif digests(out) != self.reference:
            self.wrong.append("other bytes")
        elif not accounted(out, self.rows):
            self.wrong.append("rows lost or doubled")


class SmallDisk:
    """A file system of a few hundred kilobytes that can be made larger."""

    def __init__(self, kilobytes: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(self.folder)]
        self.mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        self.file_limit = None if self.mounted else kilobytes << 6

    def grow(self) -> None:
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,size=200m", str(self.folder)], check=True)

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(self, *_: object) -> None:
        if self.mounted:
            subprocess.run(["umount", str(self.folder)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def attack(plan: dict[str, dict[str, int]], rows: int, seed: int) -> dict[str, Any]:
    """Run everything and return the counts."""
    found: dict[str, Any] = {"rows": rows, "shards": -(-rows // SHARD_ROWS), "seed": seed, "engines": {}}
    with tempfile.TemporaryDirectory() as folder:
        source = write_input(Path(folder), rows)
        calm = Path(folder) / "calm"
        code, errors = Job(command(source, calm, "local")).end()
        if code != 1 or not accounted(calm, rows):
            raise RuntimeError(f"the undisturbed run ended with {code}: {errors[-500:]}")
        found["failed_rows"] = pq.read_metadata(calm / "failed.parquet").num_rows
        found["bytes"] = sum(path.stat().st_size for path in calm.iterdir())
        for engine, kinds in plan.items():
            started = time.monotonic()
            trial = Trial(engine, source, digests(calm), rows, random.Random(f"{seed}{engine}"))
            trial.kills(kinds["worker"], kinds["driver"])
            trial.full_disks(kinds["full disk"])
            found["engines"][engine] = {
                **dict(sorted(trial.done.items())),
                "jobs_compared": trial.jobs,
                "drivers_started": trial.drivers,
                "wrong": trial.wrong,
                "seconds": round(time.monotonic() - started, 1),
            }
            print(engine, json.dumps(found["engines"][engine]), file=sys.stderr, flush=True)
    return found


def with_earlier(found: dict[str, Any]) -> dict[str, Any]:
    """Add what an earlier run on the same rows with another engine found, and count all kills."""
    path = RESULTS / "batch_kills.json"
    held = json.loads(path.read_text()) if path.exists() else {}
    if held.get("rows") == found["rows"]:
        found["engines"] = {**held["engines"], **found["engines"]}
    kinds = ("worker", "driver", "full disk")
    return {**found, "kills": sum(one.get(kind, 0) for one in found["engines"].values() for kind in kinds)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hardening.batch_kills", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 kills, nothing written")
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("local", "ray"), help="only this one, beside what is written of the other")
    parser.add_argument("--kills", type=int, nargs=3, metavar="N", help="workers, drivers, full disks")
    args = parser.parse_args(argv)
    plan = QUICK if args.quick else PLAN
    if args.engine:
        given = dict(zip(("worker", "driver", "full disk"), args.kills or (), strict=False))
        plan = {args.engine: given or plan[args.engine]}
    found = attack(plan, 300 if args.quick else args.rows, args.seed)
    print(json.dumps(found, indent=2))
    if not args.quick:
        versions = {name: metadata.version(name) for name in ("pyarrow", "ray")}
        write_results("batch_kills", {"versions": versions, **with_earlier(found)})
    return 1 if any(one["wrong"] for one in found["engines"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
