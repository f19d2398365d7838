"""A million passages in one file: time, memory and recall as the file grows, beside other vector indexes.

    python -m benchmarks.scale --folder DIR --build  # makes the files of 10,000 to 1,000,000: half an hour
    python -m benchmarks.scale --folder DIR          # measures them: some minutes on a quiet machine
    python -m benchmarks.scale --only quality        # exact scan against bit codes on three collections
    python -m benchmarks.scale --quick               # 3,000 made-up vectors: a smoke test

What the passages are: benchmarks/scale_data.py. Each size is searched by a process of its own, so that its
memory is its own. Recall is against the exact scan of the same vectors. Peers get the same vectors and
questions in the same run, by the Python that --peer-python names (one with usearch, faiss-cpu, sqlite-vec,
apsw and lancedb); build their indexes before with benchmarks.peers.vectors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import HERE, median_ms, option_parser, report, rss_mb
from benchmarks.scale_data import Passages, Questions
from benchmarks.scale_quality import compare_all
from resift.stores.sqlite import SQLiteStore
from resift.stores.sqlite.rows import BLOCK_ROWS as ROWS
from resift.stores.sqlite.vector_index import CodeTable, words_per_code
from resift.stores.sqlite.vector_index import quantize_query as quantized_query

QUESTIONS = 100
LIMITS = {
    "vector_p50_ms": 40.0,
    "hybrid_p50_ms": 80.0,
    "rss_mb": 350.0,
    "open_s": 1.0,
    "add_10000_s": 10.0,
    "reader_while_adding_p95_extra_ms": 100.0,
}
LEAST = {"recall_10": 0.99, "recall_100": 0.97}
PEERS = ("usearch", "faiss", "faiss-ivf", "sqlite-vec", "lancedb")


class Prepared:
    """An embedder whose answers are laid ready: what is measured is the store."""

    name = "prepared"

    def __init__(self) -> None:
        self.rows: Any = None

    async def embed(self, texts: Any, *, kind: str) -> Any:
        rows, self.rows = self.rows[: len(texts)], self.rows[len(texts) :]
        return rows


def file_of(folder: Path, size: int) -> Path:
    return folder / f"passages-{size}.db"


async def build(passages: Passages, folder: Path, size: int) -> None:
    """Write the first `size` passages into a file, going on where an earlier run stopped."""
    embedder = Prepared()
    store = SQLiteStore(file_of(folder, size), embedder=embedder, create=True)
    for start in range(await store.count(), size, 2048):
        end = min(start + 2048, size)
        embedder.rows = passages.vectors[start:end]
        await store.add([passages.document(number) for number in range(start, end)])
    await store.close()


def exact_answers(passages: Passages, folder: Path, size: int) -> Any:
    """Return the 100 nearest passages of every question by a scan of all vectors."""
    path = folder / f"exact-{size}.npy"
    if not path.exists():
        asked = passages.question_vectors[:QUESTIONS]
        best = np.zeros((len(asked), 0), dtype=np.int64)
        scores = np.zeros((len(asked), 0), dtype=np.float32)
        for start in range(0, size, 50_000):
            block = passages.vectors[start : min(start + 50_000, size)]
            scores = np.concatenate([scores, asked @ block.T], axis=1)
            places = np.broadcast_to(np.arange(start, start + len(block)), (len(asked), len(block)))
            best = np.concatenate([best, places], axis=1)
            keep = np.argsort(-scores, axis=1, kind="stable")[:, :100]
            scores, best = np.take_along_axis(scores, keep, 1), np.take_along_axis(best, keep, 1)
        np.save(path, best)
    return np.load(path)


async def search(passages: Passages | Questions, folder: Path, size: int) -> dict[str, Any]:
    """Open a file in this fresh process and ask it the questions; the system has it in its cache."""
    with file_of(folder, size).open("rb") as file:
        while file.read(1 << 24):
            pass
    embedder = Prepared()
    wanted = np.load(folder / f"exact-{size}.npy")
    begun, spent_before = time.perf_counter(), time.process_time()
    store = SQLiteStore(file_of(folder, size), embedder=embedder, read_only=True)
    embedder.rows = passages.question_vectors[:1]
    await store.search(passages.questions[0], k=10)  # opening is over when the first answer is there
    report: dict[str, Any] = {"size": size, "open_s": round(time.perf_counter() - begun, 3)}
    report["open_processor_s"] = round(time.process_time() - spent_before, 3)
    recall_10, recall_100 = [], []
    for name, view in (("text", store.text), ("vector", store.vectors), ("hybrid", store)):
        walls, spent = [], []
        for at in range(1, QUESTIONS):
            embedder.rows = passages.question_vectors[at : at + 1]
            wall, processor = time.perf_counter(), time.process_time()
            hits = await view.search(passages.questions[at], k=100)
            walls.append((time.perf_counter() - wall) * 1000)
            spent.append((time.process_time() - processor) * 1000)
            if name == "vector":
                found = [int(hit.id[1:]) for hit in hits]
                recall_10.append(len(set(found[:10]) & set(wanted[at, :10].tolist())) / 10)
                recall_100.append(len(set(found) & set(wanted[at].tolist())) / 100)
        report[f"{name}_p50_ms"] = round(statistics.median(walls), 2)
        report[f"{name}_p95_ms"] = round(statistics.quantiles(walls, n=20)[18], 2)
        report[f"{name}_processor_p50_ms"] = round(statistics.median(spent), 2)
    report["recall_10"] = round(statistics.mean(recall_10), 4)
    report["recall_100"] = round(statistics.mean(recall_100), 4)
    embedder.rows = passages.question_vectors[1:2]
    few = await store.vectors.search(passages.questions[1], k=5000, where={"part": 3})
    report["filter_of_0.1_percent_finds_all"] = len(few) == len(range(3, size, 1000))
    report["rss_mb"] = rss_mb()
    await store.close()
    return report | await _stop_words(file_of(folder, size))


async def _stop_words(path: Path) -> dict[str, float]:
    """Ask for words that stand in nearly every passage: the first time, and again."""
    store = SQLiteStore(path, mode="text", read_only=True)
    await store.search("zyzzyva", k=1)
    found = {}
    for when in ("first", "again"):
        begun, spent = time.perf_counter(), time.process_time()
        await store.search("the of and in", k=100)
        found[f"stop_words_{when}_ms"] = round((time.perf_counter() - begun) * 1000, 1)
        found[f"stop_words_{when}_processor_ms"] = round((time.process_time() - spent) * 1000, 1)
    await store.close()
    return found


async def grow(passages: Passages, folder: Path, size: int) -> dict[str, Any]:
    """Add 10,000 passages (again as new ones) while the file is asked all the time.

    First another process asks, as with servers; then another store of this process, which also has to share
    Python's lock with the writer.
    """
    embedder = Prepared()
    writer = SQLiteStore(file_of(folder, size), embedder=embedder)
    new = [{**passages.document(number), "id": f"new{number}"} for number in range(min(10_000, size))]

    async def add() -> float:
        begun = time.perf_counter()
        for start in range(0, len(new), 2048):
            some = new[start : start + 2048]
            embedder.rows = passages.vectors[start : start + len(some)]
            await writer.add(some)
        return time.perf_counter() - begun

    with _other_reader(folder, size) as other:
        other.stdout.readline()  # it has asked its calm questions
        spent = await add()
        report = {"add_10000_s": round(spent, 2), **json.loads(other.communicate()[0])}
    await writer.delete([one["id"] for one in new])

    ready, ended = asyncio.Event(), asyncio.Event()
    reading = asyncio.create_task(read(passages, folder, size, ready.set, ended.is_set))
    await ready.wait()
    await add()
    ended.set()
    report["same_process"] = await reading
    await writer.delete([one["id"] for one in new])
    await writer.close()
    return report


async def read(
    passages: Passages | Questions, folder: Path, size: int, ready: Callable[[], object], ended: Callable[[], bool]
) -> dict[str, float]:
    """Ask calmly, say so, and ask on until it has ended; return how much longer answers took then."""
    embedder = Prepared()
    store = SQLiteStore(file_of(folder, size), embedder=embedder, read_only=True)
    calm = [await _asked(store, embedder, passages, at) for at in range(21)][1:]
    ready()
    busy = [await _asked(store, embedder, passages, 1)]
    while not ended():
        busy.append(await _asked(store, embedder, passages, 1 + len(busy) % 20))
    await store.close()
    return {
        "reader_calm_p50_ms": round(statistics.median(calm), 1),
        "reader_while_adding_p50_ms": round(statistics.median(busy), 1),
        "reader_while_adding_p95_extra_ms": round(
            statistics.quantiles([*busy, busy[-1]], n=20)[18] - statistics.median(calm), 1
        ),
        "reader_while_adding_answers": len(busy),
    }


def _other_reader(folder: Path, size: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.scale", "--read", "--folder", str(folder)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, "--size", str(size)], cwd=HERE.parent, **pipes)


def read_until_told(folder: Path, size: int) -> dict[str, float]:
    """Ask in this process until standard input is closed."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    ready = partial(print, "ready", flush=True)
    return asyncio.run(read(Questions(folder), folder, size, ready, ended.is_set))


async def _asked(store: SQLiteStore, embedder: Prepared, passages: Passages, at: int) -> float:
    embedder.rows = passages.question_vectors[at : at + 1]
    begun = time.perf_counter()
    await store.search(passages.questions[at], k=10)
    return (time.perf_counter() - begun) * 1000


def _child(*args: str, python: str = sys.executable) -> dict[str, Any]:
    done = subprocess.run([python, "-m", *args], check=False, capture_output=True, text=True, cwd=HERE.parent)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"failed": (done.stderr.strip().splitlines() or ["no answer"])[-1][:200]}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def prepare(folder: Path, sizes: list[int], largest: int) -> None:
    """Make the files and the exact answers, where they are not there."""
    passages = Passages(folder, largest)
    Questions(folder)
    for size in sizes:
        asyncio.run(build(passages, folder, size))
        exact_answers(passages, folder, size)


def measure(folder: Path, sizes: list[int], largest: int, *, peers: str) -> list[dict[str, Any]]:
    rows = []
    for size in sizes:
        common = ("--folder", str(folder), "--size", str(size), "--largest", str(largest))
        row = _child("benchmarks.scale", "--search", *common)
        row |= _child("benchmarks.scale", "--grow", *common)
        if peers:
            asked = ("benchmarks.peers.vectors", *common)
            row["peers"] = {peer: _child(*asked, peer, python=peers) for peer in PEERS}
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def scan(count: int) -> float:
    """Return the ms that candidates take among so many random codes, without reading any vector."""
    chance = np.random.default_rng(3)
    shape = (words_per_code(384), ROWS)
    blocks = [chance.integers(0, 2**64, shape, dtype=np.uint64) for _ in range(-(-count // ROWS))]
    table, mask = CodeTable(blocks), np.ones(len(blocks) * ROWS, dtype=np.uint8)
    question = quantized_query(chance.standard_normal(384, dtype=np.float32))
    return round(median_ms(lambda: table.nearest(question, 16_000, mask), 20), 2)


def verdict(row: dict[str, Any]) -> dict[str, bool]:
    """Say which of the limits the largest size keeps."""
    met = {name: row.get(name, float("inf")) <= limit for name, limit in LIMITS.items()}
    return met | {name: row.get(name, 0.0) >= least for name, least in LEAST.items()}


def smoke() -> dict[str, Any]:
    """Do the same with a few made-up vectors, so that a test can run it."""
    chance = np.random.default_rng(1)
    passages = Passages.__new__(Passages)
    passages.texts = [f"passage {n} about topic{n % 50}" for n in range(3000)]
    passages.questions = [f"topic{n}" for n in range(QUESTIONS)]
    rows = chance.standard_normal((3000 + QUESTIONS, 64), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    passages.vectors, passages.question_vectors = rows[:3000], rows[3000:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "questions.npy", passages.question_vectors)
        (folder / "questions.json").write_text(json.dumps(passages.questions))
        asyncio.run(build(passages, folder, 3000))
        exact_answers(passages, folder, 3000)
        found = asyncio.run(search(passages, folder, 3000))
        return found | asyncio.run(grow(passages, folder, 3000))


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("scale", __doc__, parts=("growth", "quality"))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "resift-scale")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--peer-python", default="", metavar="PYTHON", help="measure the others, too")
    parser.add_argument("--search", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--grow", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--read", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--build", action="store_true", help="only make the files")
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--largest", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.search or args.grow or args.read:
        if args.search:
            found = asyncio.run(search(Questions(args.folder), args.folder, args.size))
        elif args.read:
            found = read_until_told(args.folder, args.size)
        else:
            found = asyncio.run(grow(Passages(args.folder, args.largest), args.folder, args.size))
        print(json.dumps(found))
        return 0
    if "quality" in args.only and not args.build:
        quality = compare_all(args.folder / "cache", quick=args.quick)
        report(argparse.Namespace(quick=args.quick, results=f"{args.results}_quality"), quality)
    if "growth" not in args.only:
        return 0
    if args.quick:
        report(args, smoke())
        return 0
    prepare(args.folder, args.sizes, max(args.sizes))
    if args.build:
        return 0
    rows = measure(args.folder, args.sizes, max(args.sizes), peers=args.peer_python)
    met = verdict(rows[-1])
    packages = ["resift", "numpy", "usearch", "faiss-cpu", "sqlite-vec", "lancedb"]
    scans = {str(count): scan(count) for count in (1_000_000, 3_000_000)}
    report(args, {"growth": rows, "met": met, "scan_ms": scans}, packages=packages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
