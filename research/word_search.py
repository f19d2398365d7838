"""Word search beside version 0.1: the same 100,000 chunks, the same questions, in turns.

    python -m research.word_search --old /path/of/python-with-resift-0.1
    python -m research.word_search --old … --quick     # 2,000 chunks, a smoke test

Each version indexes the chunks in a process of its own environment, then both stay open and are asked in
turns, so that both meet the same machine. Texts have Zipf-distributed words (`benchmarks.stores`). The part
that runs in either version uses nothing but what both have.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import versions, write_results

LIMIT = 1.3
QUERIES = 60
ROUNDS = 5

# Reads chunks, then questions, from standard input; answers each with milliseconds, wall and processor.
_WORKER = """
import asyncio, inspect, json, sys, time
from resift.stores.sqlite import SQLiteStore

async def main():
    path = sys.argv[1]
    # 0.1 makes a file that is not there; now it is asked to.
    made = {"create": True} if "create" in inspect.signature(SQLiteStore).parameters else {}
    store = SQLiteStore(path, **made)
    batch = []
    for line in sys.stdin:
        row = json.loads(line)
        if "ask" not in row:
            batch.append(row)
            if len(batch) == 1000:
                await store.add(batch)
                batch = []
            continue
        if batch:
            await store.add(batch)
            batch = []
        wall, cpu = time.perf_counter(), time.process_time()
        hits = await store.text.search(row["ask"], k=100)
        took = (time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000
        print(json.dumps({"wall": took[0], "cpu": took[1], "hits": len(hits)}), flush=True)
    await store.close()

asyncio.run(main())
"""


class Version:
    """One installed version at work in a process of its own."""

    def __init__(self, python: str, file: Path) -> None:
        self.process = subprocess.Popen(
            [python, "-c", _WORKER, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=file.parent,
        )

    def send(self, row: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(row) + "\n")

    def ask(self, query: str) -> dict[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.send({"ask": query})
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def measure(old: str, folder: Path, *, chunks: int, rounds: int) -> dict[str, Any]:
    """Index with both, unless an earlier run did, ask both in turns, and return medians and their ratio."""
    from benchmarks.stores import Corpus

    corpus = Corpus()
    files = {"0.1": folder / "old.db", "now": folder / "new.db"}
    there = all(file.exists() for file in files.values())
    sides = {"0.1": Version(old, files["0.1"]), "now": Version(sys.executable, files["now"])}
    for start in range(0, 0 if there else chunks, 1000):
        for row in corpus.chunks(start, min(1000, chunks - start)):
            for side in sides.values():
                side.send({"id": row["id"], "text": row["text"]})
    corpus = Corpus()
    questions = [corpus.query() for _ in range(QUERIES)]
    for side in sides.values():
        side.ask(questions[0])  # the first answer waits until everything is indexed
    times = asked_in_turns(sides, questions, rounds)
    for side in sides.values():
        side.close()
    return {
        "chunks": chunks,
        "wall_p50_ms": {name: round(statistics.median(took["wall"]), 2) for name, took in times.items()},
        "cpu_p50_ms": {name: round(statistics.median(took["cpu"]), 2) for name, took in times.items()},
        "times_0.1": {
            kind: round(statistics.median(times["now"][kind]) / statistics.median(times["0.1"][kind]), 3)
            for kind in ("wall", "cpu")
        },
        "limit": LIMIT,
    }


def asked_in_turns(
    sides: dict[str, Version], questions: list[str], rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Return per side the best of the rounds for each question, wall and processor."""
    times: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in sides}
    for query in questions:
        taken = {name: [side.ask(query) for _ in range(rounds)] for name, side in sides.items()}
        for name, answers in taken.items():
            for kind in ("wall", "cpu"):
                times[name][kind].append(min(answer[kind] for answer in answers))
    return times


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default="", help="the Python of an environment with Resift 0.1")
    parser.add_argument("--folder", type=Path, help="keep the indexes here, and use those that are there")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    if not args.old:
        print("word_search needs --old: the Python of an environment with Resift 0.1")
        return 0
    size, rounds = (2000, 2) if args.quick else (100_000, ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(args.old, args.folder or Path(folder), chunks=size, rounds=rounds)
    print(json.dumps(found, indent=2))
    if not args.quick:
        write_results("word_search", {**found, "versions": versions(["resift", "numpy"])})
    return 0


if __name__ == "__main__":
    sys.exit(main())
