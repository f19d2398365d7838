"""kill -9 while indexing, many times: nothing acknowledged may be lost, and a re-run must complete the index.

    python -m benchmarks.durability --kills 100

A child process indexes a folder of files that keep changing and writes the ids of each batch to a pipe after
the store acknowledged it. The parent kills it at a random moment, opens the file, looks for every
acknowledged id, checks the database and its word index, changes some files, and starts the next child on the
same file. At the end one run goes through, and the index must equal one that was never interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import HERE, write_results
from resift.ingest.chunking import ChunkSize
from resift.ingest.indexing import index_paths
from resift.stores.sqlite import SQLiteStore

SIZE = ChunkSize(30, 5)
FILES = 24


class SeededEmbedder:
    """A vector that depends on the text alone."""

    name = "seeded"

    async def embed(self, texts: Sequence[str], *, kind: str) -> Any:
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
        return np.stack([np.random.default_rng(seed).standard_normal(32, dtype=np.float32) for seed in seeds])


class TellingStore(SQLiteStore):
    """Tells the parent what was acknowledged, after it was."""

    async def add(self, documents: Iterable[Any]) -> int:
        given = list(documents)
        added = await super().add(given)
        if given:
            os.write(1, (json.dumps([one["id"] for one in given]) + "\n").encode())
        return added


def child(folder: Path) -> None:
    asyncio.run(
        _index(TellingStore(folder / "index.db", embedder=SeededEmbedder(), create=True), folder / "files")
    )


async def _index(store: SQLiteStore, files: Path) -> None:
    await index_paths(store, [files], size=SIZE, prune=True)
    await store.close()


def write_files(folder: Path, chance: random.Random, *, share: float) -> None:
    """Change a share of the files: new text, sometimes shorter, so that chunks appear and vanish."""
    folder.mkdir(exist_ok=True)
    for number in range(FILES):
        if chance.random() < share:
            words = [f"word{chance.randrange(3000)}" for _ in range(chance.randrange(200, 2500))]
            lines = [" ".join(words[at : at + 12]) + "." for at in range(0, len(words), 12)]
            (folder / f"file{number:02}.txt").write_text("\n".join(lines))


def killed_run(folder: Path, chance: random.Random) -> list[str]:
    """Start a child, kill it at a random moment; return what it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.durability", "--child", str(folder)],
        stdout=subprocess.PIPE,
        cwd=HERE.parent,
    )
    assert process.stdout
    early = chance.random() < 0.2  # perhaps while the file is being created or opened
    first = b"" if early else process.stdout.readline()
    delay_s = chance.random() * (0.8 if early else chance.choice([0.0, 0.01, 0.05, 0.2]))
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(delay_s)
    process.kill()
    rest = process.stdout.read()
    process.wait()
    process.stdout.close()
    whole = [line for line in (first + rest).splitlines(keepends=True) if line.endswith(b"\n")]
    return [id for line in whole for id in json.loads(line)]


def lost_after(folder: Path, acknowledged: list[str]) -> list[str]:
    """Return the acknowledged ids that the file does not hold; raises where the database is damaged."""
    if not acknowledged and not (folder / "index.db").exists():
        return []
    asyncio.run(contents(folder / "index.db"))
    with sqlite3.connect(folder / "index.db") as connection:
        held = {id for (id,) in connection.execute("SELECT id FROM documents")}
        vectors = connection.execute(
            "SELECT count(*) FROM documents WHERE row NOT IN (SELECT row FROM vectors)"
        ).fetchone()
        assert vectors == (0,), "a document without its vector"
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.execute("INSERT INTO terms (terms) VALUES ('integrity-check')")
    connection.close()
    return [id for id in acknowledged if id not in held]


async def contents(file: Path) -> dict[str, str]:
    store = SQLiteStore(file, embedder=SeededEmbedder(), create=True)
    ids = await store.ids()
    found = {hit.id: hit.text for hit in await store.get(ids)}
    await store.close()
    return found


def crash_test(folder: Path, *, kills: int, seed: int = 0) -> dict[str, Any]:
    """Kill that many runs and report what was acknowledged, lost, and found at the end."""
    chance = random.Random(seed)
    write_files(folder / "files", chance, share=1.0)
    acknowledged, lost = 0, 0
    for _ in range(kills):
        told = killed_run(folder, chance)
        acknowledged += len(told)
        lost += len(lost_after(folder, told))
        write_files(folder / "files", chance, share=0.4)
    asyncio.run(
        _index(SQLiteStore(folder / "index.db", embedder=SeededEmbedder(), create=True), folder / "files")
    )
    fresh = folder / "fresh.db"
    asyncio.run(_index(SQLiteStore(fresh, embedder=SeededEmbedder(), create=True), folder / "files"))
    after = asyncio.run(contents(folder / "index.db"))
    return {
        "kills": kills,
        "acknowledged": acknowledged,
        "lost": lost,
        "documents_at_the_end": len(after),
        "equals_an_uninterrupted_index": after == asyncio.run(contents(fresh)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="three kills, no result file")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        report = crash_test(Path(folder), kills=3 if args.quick else args.kills, seed=args.seed)
    print(json.dumps(report))
    if not args.quick:
        print("written:", write_results("durability", report).name)
    sys.exit(0 if report["lost"] == 0 and report["equals_an_uninterrupted_index"] else 1)


if __name__ == "__main__":
    main()
