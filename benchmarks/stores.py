"""Stores at size: SQLiteStore from 1k to 100k chunks (384-d), and fan-out over three stores.

    python -m benchmarks.stores            # all sizes, some minutes
    python -m benchmarks.stores --quick    # 1k and 2k, a smoke test

Texts have Zipf-distributed words, vectors are random unit vectors from an embedder that costs nothing, so
that the figures are the store's own. Each size runs in a process of its own for an honest RSS.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import HERE, option_parser, report, rss_mb
from resift.ingest.chunking import ChunkSize, chunks
from resift.pipeline.node import RetrievalNode
from resift.stores.sqlite import SQLiteStore
from resift.types import Hit

DIMENSION = 384
WORDS_PER_CHUNK = 120
VOCABULARY = 50_000
QUERY_WORDS = 6
TARGET_P50_MS, TARGET_RSS_MB, TARGET_FAN_OUT = 40.0, 600.0, 1.2


class FreeEmbedder:
    """Random unit vectors at no cost: what is measured is the store."""

    name = "free"

    def __init__(self) -> None:
        self._random = np.random.default_rng(7)

    async def embed(self, texts: list[str], *, kind: str) -> Any:
        rows = self._random.standard_normal((len(texts), DIMENSION), dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Corpus:
    """Texts of made-up words whose frequencies follow Zipf's law."""

    def __init__(self) -> None:
        spell = random.Random(1)
        syllables = [c + v for c in "bcdfgklmnprstv" for v in "aeiou"]
        self.words = np.array(
            sorted({"".join(spell.choices(syllables, k=spell.randint(2, 4))) for _ in range(VOCABULARY)})
        )
        np.random.default_rng(2).shuffle(self.words)
        weight = 1 / np.arange(1, len(self.words) + 1) ** 1.05
        self.share = weight / weight.sum()
        self._random = np.random.default_rng(3)

    def chunks(self, start: int, count: int) -> list[dict[str, Any]]:
        picked = self._random.choice(len(self.words), size=(count, WORDS_PER_CHUNK), p=self.share)
        return [
            {"id": f"c{start + at}", "text": " ".join(self.words[row]), "metadata": {"part": (start + at) % 20}}
            for at, row in enumerate(picked)
        ]

    def query(self) -> str:
        # The thirty most frequent words are the "the" and "of" of this language: nobody asks for them.
        share = self.share[30:] / self.share[30:].sum()
        return " ".join(self.words[30:][self._random.choice(len(share), size=QUERY_WORDS, p=share)])


async def build(size: int, folder: Path) -> dict[str, Any]:
    """Index `size` chunks."""
    corpus = Corpus()
    store = SQLiteStore(folder / "index.db", embedder=FreeEmbedder(), create=True)
    spent = 0.0
    for start in range(0, size, 1000):
        chunks = corpus.chunks(start, min(1000, size - start))
        begun = time.perf_counter()
        await store.add(chunks)
        spent += time.perf_counter() - begun
    await store.close()
    return {"chunks": size, "indexed_per_s": round(size / spent), "file_mb": round(_size_mb(folder), 1)}


async def search(folder: Path, *, queries: int) -> dict[str, Any]:
    """Open the file in a fresh process and search it."""
    corpus = Corpus()
    store = SQLiteStore(folder / "index.db", embedder=FreeEmbedder(), read_only=True)
    first = await _timed(store, corpus.query())
    report: dict[str, Any] = {"first_query_ms": round(first, 1)}
    asked = [corpus.query() for _ in range(queries)]
    for name, view in (("hybrid", store), ("text", store.text), ("vector", store.vectors)):
        times = [await _timed(view, query) for query in asked]
        report[f"{name}_p50_ms"] = round(statistics.median(times), 2)
        report[f"{name}_p95_ms"] = round(statistics.quantiles(times, n=20)[18], 2)
    spent = [await _processor_ms(store, query) for query in asked]
    report["hybrid_processor_p50_ms"] = round(statistics.median(spent), 2)
    filtered = [await _timed(store, query, where={"part": 3}) for query in asked[:20]]
    report["filtered_p50_ms"] = round(statistics.median(filtered), 2)
    report["rss_mb"] = rss_mb()
    await store.close()
    return report


class TimedEmbedder:
    """The real embedder, and how long it took."""

    def __init__(self) -> None:
        from resift.models.embedder import Embedder

        self._real = Embedder()
        self.model_name = self._real.model_name
        self.spent_s = 0.0

    async def embed(self, texts: list[str], *, kind: str) -> Any:
        begun = time.perf_counter()
        rows = await self._real.embed(texts, kind=kind)
        self.spent_s += time.perf_counter() - begun
        return rows


async def indexing_share(folder: Path, *, count: int) -> dict[str, Any]:
    """Index real text with the real embedder and tell how much of the time the store took."""
    pages = sorted((HERE.parent / "docs").glob("*.md"))
    texts = chunks("\n\n".join(page.read_text(encoding="utf-8") for page in pages), ChunkSize(120, 0))[:count]
    embedder = TimedEmbedder()
    await embedder.embed(["load the model"], kind="document")
    embedder.spent_s = 0.0
    store = SQLiteStore(folder / "real.db", embedder=embedder, create=True)
    begun = time.perf_counter()
    await store.add([{"id": str(at), "text": text} for at, text in enumerate(texts)])
    total_s = time.perf_counter() - begun
    await store.close()
    return {
        "chunks": len(texts),
        "embedder_per_s": round(len(texts) / embedder.spent_s, 1),
        "store_share_of_time": round(1 - embedder.spent_s / total_s, 4),
    }


class WaitingStore:
    """A store across the network: it costs time but no processor."""

    def __init__(self, name: str, wait_s: float) -> None:
        self.name = name
        self._wait_s = wait_s

    async def search(self, query: str, *, k: int, where: Any = None) -> list[Hit]:
        await asyncio.sleep(self._wait_s)
        return [Hit(f"{self.name}-{at}", "text", 1.0 / (at + 1), self.name) for at in range(k)]


async def fan_out(folder: Path, *, queries: int) -> dict[str, Any]:
    """Compare a RetrievalNode over three stores with the slowest of them alone, query by query."""
    corpus = Corpus()
    store = SQLiteStore(folder / "index.db", embedder=FreeEmbedder(), read_only=True)
    small = SQLiteStore(folder / "small.db", embedder=FreeEmbedder(), name="small", create=True)
    await small.add(corpus.chunks(0, 1000))
    report = {}
    for name, stores in (
        ("sqlite", [store.text, store.vectors, small.text]),
        ("network", [WaitingStore("near", 0.02), WaitingStore("far", 0.04), WaitingStore("farther", 0.06)]),
    ):
        report[name] = await _compared(stores, [corpus.query() for _ in range(queries)])
    await store.close()
    await small.close()
    return report


async def _compared(stores: list[Any], queries: list[str]) -> dict[str, Any]:
    node = RetrievalNode(stores, k=10)
    alone: dict[str, list[float]] = {store.name: [] for store in stores}
    together = []
    for query in queries:
        for store in stores:  # also warms every side's postings for this query
            await store.search(query, k=10)
        for store in stores:
            alone[store.name].append(await _timed(store, query))
        begun = time.perf_counter()
        await node.execute({"query": query})
        together.append((time.perf_counter() - begun) * 1000)
    medians = {name: round(statistics.median(times), 2) for name, times in alone.items()}
    fanned = statistics.median(together)
    return {"alone_ms": medians, "together_ms": round(fanned, 2), "ratio": round(fanned / max(medians.values()), 3)}


async def _timed(store: Any, query: str, **options: Any) -> float:
    begun = time.perf_counter()
    await store.search(query, k=10, **options)
    return (time.perf_counter() - begun) * 1000


async def _processor_ms(store: Any, query: str) -> float:
    """Return the processor time of all threads: what a search costs however busy the machine is."""
    begun = time.process_time()
    await store.search(query, k=10)
    return (time.process_time() - begun) * 1000


def _size_mb(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


def _child(*args: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.stores", *args], check=True, capture_output=True, text=True, cwd=HERE.parent
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def growth(sizes: list[int], queries: int) -> list[dict[str, Any]]:
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            built = _child("--build", str(size), "--folder", folder)
            found = _child("--search", str(queries), "--folder", folder)
            fanned = _child("--fan-out", str(queries), "--folder", folder)
        rows.append({**built, **found, "fan_out": fanned})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("stores", __doc__)
    parser.add_argument("--build", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--search", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--fan-out", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--share", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.build:
        print(json.dumps(asyncio.run(build(args.build, args.folder))))
        return 0
    if args.search:
        print(json.dumps(asyncio.run(search(args.folder, queries=args.search))))
        return 0
    if args.fan_out:
        print(json.dumps(asyncio.run(fan_out(args.folder, queries=args.fan_out))))
        return 0
    if args.share:
        print(json.dumps(asyncio.run(indexing_share(args.folder, count=args.share))))
        return 0
    sizes = [1_000, 2_000] if args.quick else [1_000, 10_000, 30_000, 100_000]
    load = os.getloadavg()[0]
    rows = growth(sizes, queries=20 if args.quick else 100)
    with tempfile.TemporaryDirectory() as folder:
        share = _child("--share", "16" if args.quick else "128", "--folder", folder)
    largest = rows[-1]
    verdict = {
        "hybrid_p50_within_40_ms": largest["hybrid_p50_ms"] <= TARGET_P50_MS,
        "rss_within_600_mb": largest["rss_mb"] <= TARGET_RSS_MB,
        "store_takes_less_than_a_tenth_of_indexing": share["store_share_of_time"] < 0.1,
        "fan_out_within_1.2": {name: found["ratio"] <= TARGET_FAN_OUT for name, found in largest["fan_out"].items()},
    }
    data = {"growth": rows, "indexing": share, "load_average_at_start": load, "met": verdict}
    report(args, data, packages=["resift", "numpy"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
