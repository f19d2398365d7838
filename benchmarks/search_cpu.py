"""Processor time of a search outside the model, in turns with another version of Resift.

`python -m benchmarks.search_cpu --other CHECKOUT` runs both versions in processes of their own:

no-rerank   `Index.search` of `Index(rerank=False)` on the documents of Cranfield, with its queries
stages      the default stages over two lists of 400 documents, with stub stores and a stub scorer

Without `RESIFT_DATA` (a folder with `cranfield/` in BEIR layout) the documents are made of random words.
A number is the median over rounds of the mean processor time per search, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from pathlib import Path

PARTS = ("no-rerank", "stages")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_cpu", description=__doc__)
    parser.add_argument("--other", type=Path, help="checkout of the version to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--searches", type=int, default=30, help="searches per round")
    parser.add_argument("--quick", action="store_true", help="one short round of this version")
    parser.add_argument("--worker", choices=PARTS, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.worker:
        return _work(args.worker)
    rounds, searches = (1, 3) if args.quick else (args.rounds, args.searches)
    root = Path(__file__).resolve().parent.parent
    versions = {"this": root} if args.other is None else {"this": root, "other": args.other.resolve()}
    for part in PARTS:
        workers = {name: _start(part, root, checkout) for name, checkout in versions.items()}
        times: dict[str, list[float]] = {name: [] for name in workers}
        for _ in range(rounds):
            for name, worker in workers.items():
                times[name].append(_ask(worker, searches))
        for worker in workers.values():
            worker.communicate()
        medians = {name: statistics.median(values) for name, values in times.items()}
        line = ", ".join(f"{name} {ms:.2f} ms" for name, ms in medians.items())
        ratio = f", ratio {medians['this'] / medians['other']:.3f}" if "other" in medians else ""
        print(f"{part}: {line}{ratio}", flush=True)
    return 0


def _start(part: str, root: Path, checkout: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(root / "benchmarks/search_cpu.py"), "--worker", part],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=tempfile.gettempdir(),
    )  # fmt: skip


def _ask(worker: subprocess.Popen[str], searches: int) -> float:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{searches}\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def _work(part: str) -> int:
    """Answer each line on stdin, a number of searches, with the mean processor time of one."""
    warnings.simplefilter("ignore")
    search = _no_rerank() if part == "no-rerank" else _stages()
    for i in range(5):
        search(i)
    done = 5
    for line in sys.stdin:
        count = int(line)
        started = time.process_time()
        for i in range(count):
            search(done + i)
        print((time.process_time() - started) * 1000 / count, flush=True)
        done += count
    return 0


def _no_rerank():  # type: ignore[no-untyped-def]
    import numpy as np

    from resift import Embedder, Index

    async def embed(self, texts, *, kind="document"):  # type: ignore[no-untyped-def]
        """Return the same random vector for the same text: the model is not what is measured."""
        rows = [np.random.default_rng(zlib.crc32(text.encode())).normal(size=384) for text in texts]
        vectors = np.array(rows, dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    Embedder.embed = embed
    documents, queries = _cranfield()
    index = Index(Path(tempfile.mkdtemp()) / "docs.db", rerank=False)
    index.add(documents)
    return lambda i: index.search(queries[i % len(queries)])


def _stages():  # type: ignore[no-untyped-def]
    from resift import Hit, Pipeline
    from resift.types import Scores

    documents, queries = _cranfield()
    shuffle = random.Random(1)

    class Listed:
        def __init__(self, name: str, kind: str) -> None:
            self.name, self.kind = name, kind
            chosen = shuffle.sample(documents, 400)
            self.hits = [Hit(row["id"], row["text"], 20 - i / 25, name) for i, row in enumerate(chosen)]

        async def search(self, query, *, k, where=None):  # type: ignore[no-untyped-def]
            return self.hits[:k]

    class Stub:
        name = "stub"

        async def score(self, query, hits, *, deadline):  # type: ignore[no-untyped-def]
            return Scores([float(len(hit.text) % 13) for hit in hits], self.name)

    stages = _default_stages(Stub())
    pipeline = Pipeline([Listed("words", "doc"), Listed("vectors", "vector")], **stages)
    return lambda i: pipeline.rank(queries[i % len(queries)])


def _default_stages(scorer: object) -> dict[str, object]:
    """Return the default stages, by the module paths of this version or of 0.2."""
    from resift import MemoryStore, Pipeline

    default = Pipeline.default(MemoryStore())
    fuse, rerank, guard = default.stages
    rerank.scorer = scorer
    return {"fuse": fuse, "rerank": rerank, "guard": guard, "fetch": default.fetch}


def _cranfield() -> tuple[list[dict[str, str]], list[str]]:
    folder = Path(os.environ.get("RESIFT_DATA", "")) / "cranfield"
    if (folder / "corpus.jsonl").exists():
        rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
        documents = [{"id": row["_id"], "text": f"{row['title']} {row['text']}"} for row in rows]
        lines = (folder / "queries.jsonl").read_text().splitlines()
        return [row for row in documents if row["text"].strip()], [json.loads(line)["text"] for line in lines]
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghilmnoprstu", k=draw.randint(2, 9))) for _ in range(4000)]
    texts = [" ".join(draw.choices(words, k=150)) for _ in range(1400)]
    queries = [" ".join(draw.choices(words, k=9)) for _ in range(200)]
    return [{"id": str(i), "text": text} for i, text in enumerate(texts)], queries


if __name__ == "__main__":
    sys.exit(main())
