"""Indexing a folder beside embedding its passages alone: what reading, cutting and writing add.

python -m benchmarks.indexing             # 400 abstracts of SciFact as files, three rounds in turns: 2 min
python -m benchmarks.indexing --quick     # 5 files, one round: a smoke test
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import HERE, option_parser, report
from resift.ingest.indexing import index_paths
from resift.models.embedder import Embedder
from resift.stores.sqlite import SQLiteStore

LIMIT = 1.05


class Listening(Embedder):
    """The real embedder; keeps what it was asked to embed."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    async def embed(self, texts: Any, *, kind: Any) -> Any:
        self.texts += texts
        return await super().embed(texts, kind=kind)


def write_files(folder: Path, count: int) -> None:
    """Write the first abstracts as one text file each."""
    data = Path(os.environ.get("RESIFT_DATA") or HERE.parent.parent / "shared" / "data")
    with (data / "scifact" / "corpus.jsonl").open(encoding="utf-8") as lines:
        for number, line in zip(range(count), lines, strict=False):
            row = json.loads(line)
            (folder / f"{number:05}.txt").write_text(f"{row['title']}\n\n{row['text']}", encoding="utf-8")


Spent = tuple[float, float]
"""Seconds of wall and of processor time."""


class Watch:
    """Both clocks since it was made."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def spent(self) -> Spent:
        return time.perf_counter() - self._wall, time.process_time() - self._processor


async def indexed(files: Path, store_file: Path) -> tuple[Spent, list[str]]:
    """Index the folder; return the time and the passages."""
    embedder = Listening()
    await embedder.embed(["load the model"], kind="document")
    store = SQLiteStore(store_file, embedder=embedder, create=True)
    watch = Watch()
    await index_paths(store, [files])
    spent = watch.spent()
    await store.close()
    return spent, embedder.texts[1:]


async def embedded(texts: list[str]) -> Spent:
    """Embed the same passages in one call; return the time."""
    embedder = Embedder()
    await embedder.embed(["load the model"], kind="document")
    watch = Watch()
    await embedder.embed(texts, kind="document")
    return watch.spent()


def run(files: int, rounds: int) -> dict[str, Any]:
    """Do both in turns and compare the medians."""
    totals, alone = [], []
    texts: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "files").mkdir()
        write_files(folder / "files", files)
        for number in range(rounds):
            spent, texts = asyncio.run(indexed(folder / "files", folder / f"{number}.db"))
            totals.append(spent)
            alone.append(asyncio.run(embedded(texts)))
    total, total_processor = (statistics.median(times) for times in zip(*totals, strict=True))
    embedding, embedding_processor = (statistics.median(times) for times in zip(*alone, strict=True))
    return {
        "files": files,
        "passages": len(texts),
        "indexing_s": round(total, 2),
        "embedding_alone_s": round(embedding, 2),
        "ratio": round(total / embedding, 3),
        "processor_ratio": round(total_processor / embedding_processor, 3),
        "passages_per_s": round(len(texts) / total, 1),
        "met": total <= LIMIT * embedding,
    }


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("indexing", __doc__)
    parser.add_argument("--files", type=int, default=400)
    args = parser.parse_args(argv)
    report(args, run(5 if args.quick else args.files, 1 if args.quick else 3))
    return 0


if __name__ == "__main__":
    sys.exit(main())
