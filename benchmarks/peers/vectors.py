"""Other vector indexes on the passages of benchmarks.scale: time per question, memory, recall.

    python -m benchmarks.peers.vectors usearch --folder DIR --size 100000 --largest 1000000 --build
    python -m benchmarks.peers.vectors usearch --folder DIR --size 100000 --largest 1000000

An index is built once and kept; what is measured is a process that opens it and asks.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import rss_mb
from benchmarks.scale_data import Questions

QUESTIONS, K = 100, 100
Search = Callable[[Any], list[int]]


def usearch(vectors: Any, folder: Path) -> Search:
    """HNSW with the package's defaults in half precision."""
    from usearch.index import Index

    file = folder / "index.usearch"
    if not file.exists():
        index = Index(ndim=vectors.shape[1], metric="ip", dtype="f16")
        for start in range(0, len(vectors), 10_000):
            rows = np.asarray(vectors[start : start + 10_000])
            index.add(np.arange(start, start + len(rows)), rows)
        index.save(str(file))
    index = Index.restore(str(file))
    return lambda asked: [int(key) for key in index.search(asked, K).keys]


def faiss(vectors: Any, folder: Path) -> Search:
    """HNSW, 32 neighbours, 128 candidates in view."""
    import faiss as engine

    file = folder / "index.faiss"
    if not file.exists():
        index = engine.IndexHNSWFlat(vectors.shape[1], 32, engine.METRIC_INNER_PRODUCT)
        for start in range(0, len(vectors), 10_000):
            index.add(np.ascontiguousarray(vectors[start : start + 10_000]))
        engine.write_index(index, str(file))
    index = engine.read_index(str(file))
    index.hnsw.efSearch = 128
    return lambda asked: [int(key) for key in index.search(asked[None], K)[1][0]]


def faiss_ivf(vectors: Any, folder: Path) -> Search:
    """Inverted lists around as many centres as the root of the rows, a sixteenth of them looked at."""
    import faiss as engine

    file = folder / "index.faiss"
    if not file.exists():
        centres = int(len(vectors) ** 0.5)
        flat = engine.IndexFlatIP(vectors.shape[1])
        index = engine.IndexIVFFlat(flat, vectors.shape[1], centres, engine.METRIC_INNER_PRODUCT)
        index.train(np.ascontiguousarray(vectors[:: max(1, len(vectors) // (40 * centres))]))
        for start in range(0, len(vectors), 10_000):
            index.add(np.ascontiguousarray(vectors[start : start + 10_000]))
        engine.write_index(index, str(file))
    index = engine.read_index(str(file))
    index.nprobe = max(8, index.nlist // 16)
    return lambda asked: [int(key) for key in index.search(asked[None], K)[1][0]]


def sqlite_vec(vectors: Any, folder: Path) -> Search:
    """Brute force in SQLite (this Python's SQLite cannot load extensions, so through apsw)."""
    import apsw
    import sqlite_vec as engine

    there = (folder / "peer.db").exists()
    connection = apsw.Connection(str(folder / "peer.db"))
    connection.enable_load_extension(True)
    connection.load_extension(engine.loadable_path())
    if not there:
        connection.execute(f"CREATE VIRTUAL TABLE v USING vec0(e float[{vectors.shape[1]}] distance_metric=cosine)")
        with connection:
            rows = ((at + 1, row.tobytes()) for at, row in enumerate(vectors))
            connection.executemany("INSERT INTO v (rowid, e) VALUES (?, ?)", rows)
    statement = "SELECT rowid FROM v WHERE e MATCH ? AND k = ? ORDER BY distance"
    return lambda asked: [row - 1 for (row,) in connection.execute(statement, (asked.tobytes(), K))]


def lancedb(vectors: Any, folder: Path) -> Search:
    """IVF with HNSW inside, refined four times."""
    import lancedb as engine

    database = engine.connect(str(folder))
    table = database.open_table("v") if (folder / "v.lance").exists() else _lance_table(database, vectors)

    def search(asked: Any) -> list[int]:
        found = table.search(asked).distance_type("dot").nprobes(20).refine_factor(4).select(["id"]).limit(K)
        return [int(key) for key in found.to_arrow()["id"].to_pylist()]

    return search


def _lance_table(database: Any, vectors: Any) -> Any:
    import pyarrow as arrow
    from lancedb.index import HnswSq

    kind = arrow.list_(arrow.float32(), vectors.shape[1])
    schema = arrow.schema([("id", arrow.int64()), ("vector", kind)])
    table = database.create_table("v", schema=schema)
    for start in range(0, len(vectors), 50_000):
        block = np.asarray(vectors[start : start + 50_000])
        column = arrow.FixedSizeListArray.from_arrays(arrow.array(block.ravel()), vectors.shape[1])
        ids = arrow.array(range(start, start + len(block)))
        table.add(arrow.table({"id": ids, "vector": column}, schema=schema))
    table.create_index("vector", config=HnswSq(distance_type="dot"))
    return table


PEERS = {"usearch": usearch, "faiss": faiss, "faiss-ivf": faiss_ivf, "sqlite-vec": sqlite_vec, "lancedb": lancedb}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--largest", type=int, required=True)
    parser.add_argument("--build", action="store_true", help="only build the index")
    args = parser.parse_args()
    folder = args.folder / "peers" / f"{args.peer}-{args.size}"
    note = folder / "built.json"
    if args.build:
        build(args, folder, note)
    elif note.exists():
        questions = Questions(args.folder).question_vectors
        wanted = np.load(args.folder / f"exact-{args.size}.npy")
        print(json.dumps(json.loads(note.read_text()) | measure(PEERS[args.peer](None, folder), questions, wanted)))
    else:
        print(json.dumps({"not_built": True}))


def build(args: argparse.Namespace, folder: Path, note: Path) -> None:
    """Build the index and note how long it took; what an interrupted build left is removed."""
    if note.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shape = (args.largest, Questions(args.folder).question_vectors.shape[1])
    whole = np.memmap(args.folder / f"vectors-{args.largest}.f32", dtype=np.float32, mode="r", shape=shape)
    spent = time.process_time()
    PEERS[args.peer](whole[: args.size], folder)
    note.write_text(json.dumps({"build_processor_s": round(time.process_time() - spent, 1)}))


def measure(search: Search, questions: Any, wanted: Any) -> dict[str, Any]:
    """Ask the questions; recall is against the exact scan."""
    walls, spent, recall_10, recall_100 = [], [], [], []
    search(questions[0])
    for at in range(1, QUESTIONS):
        wall, processor = time.perf_counter(), time.process_time()
        found = search(questions[at])
        walls.append((time.perf_counter() - wall) * 1000)
        spent.append((time.process_time() - processor) * 1000)
        recall_10.append(len(set(found[:10]) & set(wanted[at, :10].tolist())) / 10)
        recall_100.append(len(set(found) & set(wanted[at].tolist())) / 100)
    return {
        "p50_ms": round(statistics.median(walls), 2),
        "processor_p50_ms": round(statistics.median(spent), 2),
        "recall_10": round(statistics.mean(recall_10), 4),
        "recall_100": round(statistics.mean(recall_100), 4),
        "rss_mb": rss_mb(),
    }


if __name__ == "__main__":
    main()
