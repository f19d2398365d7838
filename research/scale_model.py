"""What millions and billions of passages need, simulated from what was measured here.

python -m research.scale_model                        # 10 million and 1 billion passages
python -m research.scale_model --passages 50000000 --cores 64

Reads benchmarks/results/batch.json and batch_parts.json. Workers take shards of 1,000 passages one after
another; a shard's time is drawn around the measured rate; workers die at random, which costs what they had
done of their shard and a new start. Then the shards are loaded, at the rate of one writer into each store;
how many writers an engine takes at once on machines of its own was not measured.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import sys
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import RESULTS, write_results

SHARD = 1000
SPREAD = 0.1
"""Shards differ in length: the standard deviation of their time, as a part of it."""

HOURS_BETWEEN_DEATHS = 24.0
"""A worker dies once a day: machines that are taken back at any moment, memory that runs out."""

MOST_SIMULATED = 200_000
"""Shards that are simulated one by one; longer jobs are a multiple of that."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What this machine did."""

    embed_per_core_s: float
    start_s: float
    worker_mb: float
    shard_bytes: int
    index_bytes: int
    one_writer_s: float
    postgres_s: float
    lancedb_s: float


def measured() -> Measured:
    """Read the results of the two benchmarks."""
    batch = json.loads((RESULTS / "batch.json").read_text())["embed"]
    parts = json.loads((RESULTS / "batch_parts.json").read_text())
    filling = parts["filling"]
    return Measured(
        # By processor time: it holds on a busy machine too.
        embed_per_core_s=batch["engines"]["local"]["rows_per_processor_s_after_start"],
        start_s=batch["engines"]["local"]["start_s"],
        worker_mb=max(one["peak_mb"] for one in parts["memory"].values()),
        shard_bytes=filling["shard_bytes_a_chunk"],
        index_bytes=filling["sqlite"]["bytes_a_chunk"],
        one_writer_s=filling["sqlite"]["1"],
        postgres_s=filling["postgres"]["1"],
        lancedb_s=filling["lancedb"]["1"],
    )


def embedding_hours(passages: int, cores: int, rates: Measured, seed: int = 1) -> dict[str, float]:
    """Simulate workers over shards; return hours, deaths and the part of the work that was done twice."""
    shards = -(-passages // SHARD)
    simulated = min(shards, max(MOST_SIMULATED, 20 * cores))
    draw = random.Random(seed)
    usual_s = SHARD / rates.embed_per_core_s
    per_s = 1 / (HOURS_BETWEEN_DEATHS * 3600)
    free = [rates.start_s] * cores  # when each worker can take its next shard
    heapq.heapify(free)
    deaths, lost_s, done_s = 0, 0.0, 0.0
    for _ in range(simulated):
        at = heapq.heappop(free)
        takes = max(0.1 * usual_s, draw.gauss(usual_s, SPREAD * usual_s))
        while (dies := draw.expovariate(per_s)) < takes:
            deaths += 1
            lost_s += dies
            at += dies + rates.start_s
        done_s += takes
        heapq.heappush(free, at + takes)
    more = shards / simulated
    hours = max(free) / 3600 * (more if more > 1 else 1)
    return {"hours": round(hours, 2), "deaths": round(deaths * more), "done_twice": round(lost_s / done_s, 5)}


def loading(passages: int, cores: int, rates: Measured) -> dict[str, Any]:
    """Return the hours of one writer into each store, and how many would keep up with the embedding."""
    stores = {"SQLite": rates.one_writer_s, "PostgreSQL": rates.postgres_s, "LanceDB": rates.lancedb_s}
    embedded_s = cores * rates.embed_per_core_s
    return {
        name: {"hours": round(passages / rate / 3600, 2), "writers_to_keep_up": math.ceil(embedded_s / rate)}
        for name, rate in stores.items()
    }


def plan(passages: int, cores: int, rates: Measured) -> dict[str, Any]:
    """Return what so many passages need on so many cores."""
    embedding = embedding_hours(passages, cores, rates)
    return {
        "passages": passages,
        "cores": cores,
        "embedding": embedding,
        "one_writer": loading(passages, cores, rates),
        "workers_memory_gb": round(cores * rates.worker_mb / 1000, 1),
        "shards_gb": round(passages * rates.shard_bytes / 1e9, 1),
        "index_gb": round(passages * rates.index_bytes / 1e9, 1),
        "core_hours": round(embedding["hours"] * cores, 1),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m research.scale_model", description=__doc__)
    parser.add_argument("--passages", type=int, help="only so many, nothing written")
    parser.add_argument("--cores", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="a million, nothing written")
    args = parser.parse_args(argv)
    rates = measured()
    # One writer keeps up with so many cores that embed; with more it is what the job waits for.
    enough = rates.one_writer_s / rates.embed_per_core_s
    found: dict[str, Any] = {
        "embed_per_core_s": round(rates.embed_per_core_s, 1),
        "one_writer_per_s": rates.one_writer_s,
        "cores_one_writer_keeps_up_with": round(enough, 1),
    }
    if args.passages or args.quick:
        found["plan"] = plan(args.passages or 1_000_000, args.cores, rates)
    else:
        found["plans"] = [
            plan(passages, cores, rates)
            for passages, sizes in ((10_000_000, (2, 32, 128)), (1_000_000_000, (128, 1024, 4096)))
            for cores in sizes
        ]
    print(json.dumps(found, indent=2))
    if "plans" in found:
        write_results("scale_model", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
