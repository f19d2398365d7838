"""Other vector indexes on the passages of benchmarks.scale: time per question, memory, recall.

python -m benchmarks.peer_vectors usearch --folder DIR --size 100000 --largest 1000000
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import rss_mb
from benchmarks.scale_data import Questions

QUESTIONS, K = 100, 100
Search = Callable[[Any], list[int]]


def usearch(vectors: Any, _folder: Path) -> Search:
    """HNSW with the package's defaults, half precision as it chooses by itself."""
    from usearch.index import Index

    index = Index(ndim=vectors.shape[1], metric="ip", dtype="f16")
    for start in range(0, len(vectors), 10_000):
        rows = np.asarray(vectors[start : start + 10_000])
        index.add(np.arange(start, start + len(rows)), rows)
    return lambda asked: [int(key) for key in index.search(asked, K).keys]


def faiss(vectors: Any, _folder: Path) -> Search:
    """HNSW, 32 neighbours, 128 candidates in view."""
    import faiss as engine

    index = engine.IndexHNSWFlat(vectors.shape[1], 32, engine.METRIC_INNER_PRODUCT)
    index.hnsw.efSearch = 128
    for start in range(0, len(vectors), 10_000):
        index.add(np.ascontiguousarray(vectors[start : start + 10_000]))
    return lambda asked: [int(key) for key in index.search(asked[None], K)[1][0]]


def sqlite_vec(vectors: Any, folder: Path) -> Search:
    """Brute force in SQLite (this Python's SQLite cannot load extensions, so through apsw)."""
    import apsw
    import sqlite_vec as engine

    connection = apsw.Connection(str(folder / "peer.db"))
    connection.enable_load_extension(True)
    connection.load_extension(engine.loadable_path())
    connection.execute(
        f"CREATE VIRTUAL TABLE v USING vec0(e float[{vectors.shape[1]}] distance_metric=cosine)"
    )
    with connection:
        rows = ((at + 1, row.tobytes()) for at, row in enumerate(vectors))
        connection.executemany("INSERT INTO v (rowid, e) VALUES (?, ?)", rows)
    statement = "SELECT rowid FROM v WHERE e MATCH ? AND k = ? ORDER BY distance"
    return lambda asked: [row - 1 for (row,) in connection.execute(statement, (asked.tobytes(), K))]


def lancedb(vectors: Any, folder: Path) -> Search:
    """IVF with HNSW inside, refined four times."""
    import lancedb as engine
    import pyarrow as arrow
    from lancedb.index import HnswSq

    kind = arrow.list_(arrow.float32(), vectors.shape[1])
    schema = arrow.schema([("id", arrow.int64()), ("vector", kind)])
    table = engine.connect(str(folder)).create_table("v", schema=schema)
    for start in range(0, len(vectors), 50_000):
        block = np.asarray(vectors[start : start + 50_000])
        column = arrow.FixedSizeListArray.from_arrays(arrow.array(block.ravel()), vectors.shape[1])
        ids = arrow.array(range(start, start + len(block)))
        table.add(arrow.table({"id": ids, "vector": column}, schema=schema))
    table.create_index("vector", config=HnswSq(distance_type="dot"))

    def search(asked: Any) -> list[int]:
        found = table.search(asked).distance_type("dot").nprobes(20).refine_factor(4).select(["id"]).limit(K)
        return [int(key) for key in found.to_arrow()["id"].to_pylist()]

    return search


PEERS = {"usearch": usearch, "faiss": faiss, "sqlite-vec": sqlite_vec, "lancedb": lancedb}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--largest", type=int, required=True)
    args = parser.parse_args()
    questions = Questions(args.folder).question_vectors
    shape = (args.largest, questions.shape[1])
    whole = np.memmap(args.folder / f"vectors-{args.largest}.f32", dtype=np.float32, mode="r", shape=shape)
    wanted = np.load(args.folder / f"exact-{args.size}.npy")
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        search = PEERS[args.peer](whole[: args.size], Path(folder))
        built_s = time.perf_counter() - begun
        del whole
        walls, spent, recall_10, recall_100 = [], [], [], []
        for at in range(1, QUESTIONS):
            wall, processor = time.perf_counter(), time.process_time()
            found = search(questions[at])
            walls.append((time.perf_counter() - wall) * 1000)
            spent.append((time.process_time() - processor) * 1000)
            recall_10.append(len(set(found[:10]) & set(wanted[at, :10].tolist())) / 10)
            recall_100.append(len(set(found) & set(wanted[at].tolist())) / 100)
        print(
            json.dumps(
                {
                    "build_s": round(built_s, 1),
                    "p50_ms": round(statistics.median(walls), 2),
                    "processor_p50_ms": round(statistics.median(spent), 2),
                    "recall_10": round(statistics.mean(recall_10), 4),
                    "recall_100": round(statistics.mean(recall_100), 4),
                    "rss_mb": rss_mb(),
                }
            )
        )


if __name__ == "__main__":
    main()
