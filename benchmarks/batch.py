"""Throughput of bulk work: processes of this machine and Ray, beside the library called in one process.

python -m benchmarks.batch                          # 20,000 × 20 pairs, 50,000 passages: hours on two cores
python -m benchmarks.batch --size 0.2 --turns 2 --only embed
python -m benchmarks.batch --quick                  # a smoke run, nothing written

The rows are done in several turns, in each by the library in this process with its model loaded before, by
local processes and by Ray, one after the other on the same cores. Many short turns and not one long one: the
speed of a rented core drifts by a tenth within minutes, and what is compared must share the drift.

Of each engine: its rate after the first finished rows, and `fixed_s`, all else that a job takes: new
processes, loading models, the manifest, the end of Ray. `ratio` is that of one job over the rows of this run,
`ratio_full_size` of one over 20,000 questions or 50,000 passages: rows / (fixed_s + rows / rate). Targets, at
the full size: local ≥ 0.95, Ray ≥ 0.85. `processor` compares rows per processor second after the start, of
this process and all below it, Ray's own included: for machines on which others are at work too.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.batch_data import write_passages, write_questions
from benchmarks.harness import descendants, option_parser, report
from resift import Embedder, rerank
from resift._internal.sync import run_sync
from resift.batch import EmbedWork, RerankWork, run_batch
from resift.batch.job import BatchProgress

QUESTIONS, CANDIDATES, PASSAGES = 20_000, 20, 50_000
TARGETS = {"local": 0.95, "ray": 0.85}
EMBED_AT_ONCE = 512


def rerank_here(source: Path) -> None:
    """Rerank every row with the library, in this process, with all cores."""
    for batch in pq.ParquetFile(source).iter_batches(64):
        for row in batch.to_pylist():
            rerank(row["query"], row["candidates"])


def embed_here(source: Path) -> None:
    """Embed every row with the library, in this process, with all cores."""
    embedder = Embedder()
    for batch in pq.ParquetFile(source).iter_batches(EMBED_AT_ONCE, columns=["text"]):
        run_sync(embedder.embed(batch.column("text").to_pylist(), kind="document"))


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


def here_run(here: Callable[[Path], None], source: Path) -> dict[str, float]:
    """Let the library do the rows; return wall and processor seconds."""
    started = time.perf_counter()
    with ProcessorTime() as used:
        here(source)
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

        run_batch(kind, source, out, engine=engine, workers=workers, shard_rows=shard_rows, on_progress=progress)
        wall, processor = time.perf_counter() - started, used.seconds()
    first, last = seen[0], seen[-1]
    return {
        "wall_s": round(wall, 2),
        "processor_s": round(processor, 2),
        "start_s": round(first.seconds, 2),
        # The other workers are as far as the first one that reports.
        "rows_after_start": last.rows - workers * first.rows,
        "wall_after_start_s": round(last.seconds - first.seconds, 2),
        "processor_after_start_s": round(processor - used_first, 2),
    }


def compared(
    kind: Any, here: Callable[[Path], None], source: Path, *, rows: int, turns: int, full: int
) -> dict[str, Any]:
    """Let the library and both engines take turns on the same rows, `turns` times."""
    cores, shard_rows = len(os.sched_getaffinity(0)), max(5, rows // 100)
    runs: dict[str, list[dict[str, Any]]] = {"in_process": [], **{engine: [] for engine in TARGETS}}
    for _ in range(turns):
        runs["in_process"].append(here_run(here, source))
        for engine in TARGETS:
            runs[engine].append(engine_run(kind, source, engine, workers=cores, shard_rows=shard_rows))
        print({name: one[-1] for name, one in runs.items()}, file=sys.stderr, flush=True)
    library = {f"rows_per_{unit}_s": round(turns * rows / _sum(runs["in_process"], f"{unit}_s"), 3)
               for unit in ("wall", "processor")}  # fmt: skip
    engines = {name: _engine_figures(runs[name], library, rows=rows, full=full) for name in TARGETS}
    return {
        "rows": rows, "turns": turns, "cores": cores, "shard_rows": shard_rows, "full_size": full,
        "runs": runs, "in_process": library, "engines": engines,
        "missed": [name for name, least in TARGETS.items() if engines[name]["ratio_full_size"] < least],
    }  # fmt: skip


def _engine_figures(runs: list[dict[str, Any]], library: dict[str, float], *, rows: int, full: int) -> dict[str, float]:
    after = _sum(runs, "rows_after_start")
    rate = after / _sum(runs, "wall_after_start_s")
    by_processor = after / _sum(runs, "processor_after_start_s")
    fixed_s = statistics.fmean(run["wall_s"] for run in runs) - rows / rate
    base = library["rows_per_wall_s"]
    figures = {
        "start_s": statistics.fmean(run["start_s"] for run in runs),
        "fixed_s": fixed_s,
        "rows_per_s_after_start": rate,
        "rows_per_processor_s_after_start": by_processor,
        "ratio": rows / (fixed_s + rows / rate) / base,
        "ratio_full_size": full / (fixed_s + full / rate) / base,
        "ratio_after_start": rate / base,
        "ratio_processor_after_start": by_processor / library["rows_per_processor_s"],
    }
    return {name: round(value, 3) for name, value in figures.items()}


def _sum(runs: list[dict[str, Any]], name: str) -> float:
    return math.fsum(run[name] for run in runs)


def run(size: float, words: int, only: Sequence[str], turns: int) -> dict[str, Any]:
    """Measure both kinds of work, or one."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if "rerank" in only:
            rows = max(30, round(QUESTIONS * size / turns))
            source = write_questions(Path(folder) / "q.parquet", rows=rows, candidates=CANDIDATES, words=words)
            rerank("warm", ["up"])
            found["rerank"] = {
                "candidates": CANDIDATES, "words": words,
                **compared(RerankWork(), rerank_here, source, rows=rows, turns=turns, full=QUESTIONS),
            }  # fmt: skip
        if "embed" in only:
            rows = max(300, round(PASSAGES * size / turns))
            source = write_passages(Path(folder) / "p.parquet", rows=rows, words=words)
            run_sync(Embedder().embed(["warm up"], kind="document"))
            found["embed"] = {
                "words": words,
                **compared(EmbedWork(), embed_here, source, rows=rows, turns=turns, full=PASSAGES),
            }  # fmt: skip
    return found


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("batch", __doc__, parts=("rerank", "embed"))
    parser.add_argument("--size", type=float, default=1.0, help="part of the full number of rows (1)")
    parser.add_argument("--turns", type=int, default=8, help="parts that the rows are done in (8)")
    parser.add_argument("--words", type=int, default=60, help="words a text (60)")
    args = parser.parse_args(argv)
    size, turns = (0.0015, 1) if args.quick else (args.size, args.turns)
    found = run(size, args.words, args.only, turns)
    report(args, found, packages=["pyarrow", "ray"], keep=True)
    return 0 if args.quick or not any(one["missed"] for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
