"""Processor time per question of the whole default pipeline, beside another version's, in turns.

    python -m research.default_time WORK --against TREE/src [--questions 15] [--only squad2-dev-passages …]

RESIFT_DATA is where the collections lie. Two processes, one per version, each with an index of its own in
WORK, answer the same questions (the first by a digest of their ids) in turns; nothing is cached, and what the
process spends while it answers is counted. The first question, which loads the models, is not.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
WORKER = "--worker"


def asked(queries: dict[str, str], most: int) -> list[str]:
    """Return the first questions by digest of their ids: chosen by no property of theirs."""
    ids = sorted(queries, key=lambda query: hashlib.sha256(query.encode()).digest())
    return [queries[id] for id in ids[:most]]


async def work(data: Path, cache: Path, most: int) -> None:
    """Answer a question per line of stdin; write the processor time of each, in milliseconds."""
    # Only what both versions have.
    from resift.evaluation.readers import read_collection
    from resift.evaluation.running import build_index
    from resift.evaluation.systems import find_system

    collection = read_collection(data)
    pipeline = find_system("default").open(await asyncio.to_thread(build_index, collection, cache))
    questions = asked(dict(collection.queries), most)
    await pipeline.search(questions[0], k=10)
    print(len(questions), flush=True)
    for question in questions[1:]:
        sys.stdin.readline()
        before = time.process_time()
        await pipeline.search(question, k=10)
        print(f"{(time.process_time() - before) * 1000:.3f}", flush=True)


def started(source: Path, data: Path, cache: Path, most: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, WORKER, str(data), str(cache), str(most)]
    env = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline() if process.stdout else ""


def answered(process: subprocess.Popen[str]) -> float:
    """Let the process answer its next question; return what it spent."""
    if process.stdin:
        process.stdin.write("\n")
        process.stdin.flush()
    return float(line_of(process))


def in_turns(sources: dict[str, Path], data: Path, work: Path, most: int) -> dict[str, Any]:
    """Return mean and median per version: each question is asked of both before the next one."""
    running = {name: started(source, data, work / name, most) for name, source in sources.items()}
    spent: dict[str, list[float]] = {name: [] for name in running}
    try:
        counts = [int(line_of(process)) for process in running.values()]
        for _ in range(min(counts) - 1):
            for name, process in running.items():
                spent[name].append(answered(process))
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return {
        name: {
            "questions": len(values),
            "mean": round(statistics.fmean(values), 1),
            "median": round(statistics.median(values), 1),
        }
        for name, values in spent.items()
    }


def main(argv: list[str] | None = None) -> int:
    from benchmarks.default_table import COLLECTIONS
    from benchmarks.harness import write_results

    parser = argparse.ArgumentParser(prog="python -m research.default_time", description=__doc__)
    parser.add_argument("work", type=Path, help="where indexes and results are kept")
    parser.add_argument("--against", type=Path, required=True, help="the src folder of the other version")
    parser.add_argument("--name", default="0.1", help="what to call it")
    parser.add_argument("--questions", type=int, default=15)
    parser.add_argument("--only", nargs="+", default=COLLECTIONS, help="which collections")
    args = parser.parse_args(argv)
    data = Path(os.environ.get("RESIFT_DATA", "../shared/data"))
    args.work.mkdir(parents=True, exist_ok=True)
    kept = args.work / "default_time.json"
    rows = json.loads(kept.read_text()) if kept.exists() else {}
    for name in args.only:
        sources = {args.name: args.against, "now": HERE / "src"}
        rows[name] = in_turns(sources, data / name, args.work, args.questions + 1)
        print(name, rows[name], flush=True)
        kept.write_text(json.dumps(rows))
    print("written:", write_results("default_time", {"processor ms per question": rows}).name)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == [WORKER]:
        asyncio.run(work(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
    else:
        sys.exit(main())
