"""Throughput of bulk work: processes of this machine and Ray, beside the library called in one process.

python -m benchmarks.batch                          # 20,000 × 20 pairs, 50,000 passages: hours on two cores
python -m benchmarks.batch --size 0.05 --only rerank
python -m benchmarks.batch --quick                  # a smoke run, nothing written

In one run all three take turns on the same rows and the same cores: the library in this process on half of
the rows, local, Ray, the library on the other half, with its model loaded before; its better half counts. The
engines' time is all of it: new processes, loading models, reading, writing and syncing shards, the manifest;
`after_start` leaves out what comes before the first finished rows. Targets: local ≥ 0.95, Ray ≥ 0.85.
`processor` compares rows per processor second instead, of this process and all below it, Ray's own included:
for machines on which others are at work too, where wall time says nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.batch_data import write_passages, write_questions
from benchmarks.batch_kills import descendants
from benchmarks.harness import RESULTS, versions, write_results
from resift import Embedder, rerank
from resift.batch import EmbedWork, RerankWork, run_batch
from resift.batch.job import BatchProgress
from resift.sync import run_sync

QUESTIONS, CANDIDATES, PASSAGES = 20_000, 20, 50_000
TARGETS = {"local": 0.95, "ray": 0.85}
EMBED_AT_ONCE = 512


def rerank_here(source: Path, half: int) -> None:
    """Rerank every second row with the library, in this process, with all cores."""
    for batch in pq.ParquetFile(source).iter_batches(64):
        for row in batch.to_pylist()[half::2]:
            rerank(row["query"], row["candidates"])


def embed_here(source: Path, half: int) -> None:
    """Embed every second row with the library, in this process, with all cores."""
    embedder = Embedder()
    for batch in pq.ParquetFile(source).iter_batches(EMBED_AT_ONCE, columns=["text"]):
        run_sync(embedder.embed(batch.column("text").to_pylist()[half::2], kind="document"))


class ProcessorTime:
    """Adds up the processor time of this process and of all that it starts, also those that are gone."""

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._before = 0.0

    def __enter__(self) -> ProcessorTime:
        self._before = time.process_time()
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._sampler.join()

    def seconds(self) -> float:
        """Return what was used so far."""
        self._look()
        return time.process_time() - self._before + sum(self._seen.values())

    def _sample(self) -> None:
        while not self._ended.wait(1.0):  # looking takes milliseconds of the cores that are measured
            self._look()

    def _look(self) -> None:
        ticks = os.sysconf("SC_CLK_TCK")
        for pid in descendants(os.getpid()):
            with suppress(OSError, IndexError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self._seen[pid] = (int(fields[11]) + int(fields[12])) / ticks


def here_run(here: Callable[[Path, int], None], source: Path, half: int) -> dict[str, float]:
    """Let the library do half of the rows; return wall and processor seconds."""
    started = time.perf_counter()
    with ProcessorTime() as used:
        here(source, half)
        return {"wall_s": round(time.perf_counter() - started, 2), "processor_s": round(used.seconds(), 2)}


def engine_run(kind: Any, source: Path, engine: str, *, workers: int, shard_rows: int) -> dict[str, Any]:
    """Run a whole job with an engine; say also how quick it was after its first finished rows."""
    seen: list[BatchProgress] = []
    used_first = 0.0
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as out, ProcessorTime() as used:

        def progress(state: BatchProgress) -> None:
            nonlocal used_first
            if state.rows and not seen:
                used_first = used.seconds()
            if state.rows:
                seen.append(state)

        run_batch(
            kind, source, out, engine=engine, workers=workers, shard_rows=shard_rows, on_progress=progress
        )
        wall, processor = time.perf_counter() - started, used.seconds()
    first, last = seen[0], seen[-1]
    rows = last.rows - first.rows
    return {
        "wall_s": round(wall, 2),
        "processor_s": round(processor, 2),
        "start_s": round(first.seconds, 2),
        "rows_per_s_after_start": round(rows / (last.seconds - first.seconds), 3),
        "rows_per_processor_s_after_start": round(rows / (processor - used_first), 3),
    }


def compared(
    kind: Any, here: Callable[[Path, int], None], source: Path, rows: int, shard_rows: int
) -> dict[str, Any]:
    """Let the library and both engines take turns on the same rows."""
    cores = len(os.sched_getaffinity(0))
    turns = {"in_process_1": here_run(here, source, 0)}
    for engine in TARGETS:
        turns[engine] = engine_run(kind, source, engine, workers=cores, shard_rows=shard_rows)
        print(engine, turns[engine], file=sys.stderr, flush=True)
    turns["in_process_2"] = here_run(here, source, 1)
    # Twice its better half: what others took from one of them must not make the engines look good.
    halves = (turns["in_process_1"], turns["in_process_2"])
    wall = 2 * min(half["wall_s"] for half in halves)
    ratios = {engine: round(wall / turns[engine]["wall_s"], 3) for engine in TARGETS}
    used = 2 * min(half["processor_s"] for half in halves)
    after = {engine: round(turns[engine]["rows_per_s_after_start"] * wall / rows, 3) for engine in TARGETS}
    processor = {
        engine: round(turns[engine]["rows_per_processor_s_after_start"] * used / rows, 3)
        for engine in TARGETS
    }
    return {
        "rows": rows, "cores": cores, "shard_rows": shard_rows, "turns": turns,
        "in_process_rows_per_s": round(rows / wall, 2), "ratio": ratios, "ratio_after_start": after,
        "ratio_processor_after_start": processor,
        "missed": [engine for engine, least in TARGETS.items() if ratios[engine] < least],
    }  # fmt: skip


def run(size: float, words: int, only: str | None) -> dict[str, Any]:
    """Measure both kinds of work, or one."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if only in (None, "rerank"):
            rows = max(30, round(QUESTIONS * size))
            source = write_questions(
                Path(folder) / "q.parquet", rows=rows, candidates=CANDIDATES, words=words
            )
            rerank("warm", ["up"])
            found["rerank"] = {
                "candidates": CANDIDATES, "words": words,
                **compared(RerankWork(), rerank_here, source, rows, max(5, rows // 100)),
            }  # fmt: skip
        if only in (None, "embed"):
            rows = max(200, round(PASSAGES * size))
            source = write_passages(Path(folder) / "p.parquet", rows=rows, words=words)
            run_sync(Embedder().embed(["warm up"], kind="document"))
            found["embed"] = {
                "words": words,
                **compared(EmbedWork(), embed_here, source, rows, max(25, rows // 100)),
            }  # fmt: skip
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batch", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run; nothing is written")
    parser.add_argument("--size", type=float, default=1.0, help="part of the full number of rows (1)")
    parser.add_argument("--words", type=int, default=60, help="words a text (60)")
    parser.add_argument("--only", choices=("rerank", "embed"))
    args = parser.parse_args(argv)
    size = 0.0015 if args.quick else args.size
    found = run(size, args.words, args.only)
    print(json.dumps(found, indent=2))
    if not args.quick:
        path = RESULTS / "batch.json"
        held = json.loads(path.read_text()) if path.exists() else {}
        kept = {kind: held[kind] for kind in ("rerank", "embed") if kind in held}
        write_results("batch", {"versions": versions(["pyarrow", "ray"]), **kept, **found})
    return 0 if args.quick or not any(one["missed"] for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
