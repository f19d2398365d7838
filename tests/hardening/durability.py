"""kill -9 while indexing, many times: nothing acknowledged may be lost, and a re-run must complete the index.

    python -m tests.hardening.durability --kills 100

A child process indexes a folder of files that keep changing and writes the ids of each batch to a pipe after
the store acknowledged it. The parent kills it at a random moment, opens the file, looks for every
acknowledged id, checks the database and its word index, changes some files, and starts the next child on the
same file. At the end one run goes through, and the index must equal one that was never interrupted.

Power cuts: the writes of another child are recorded below SQLite. From the record, `power_loss.py` builds the
files that a cut would leave behind: everything synced, and a random half of the other sectors.
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

from resift.ingest.chunking import ChunkSize
from resift.ingest.indexing import index_paths
from resift.stores.sqlite import SQLiteStore
from resift.stores.sqlite.writer import Batch
from tests.hardening.power_loss import disk, recorded
from tests.hardening.report import ROOT, write_results

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

    async def write(self, batch: Batch) -> None:
        await super().write(batch)
        if batch.hits:
            os.write(1, (json.dumps([hit.id for hit in batch.hits]) + "\n").encode())


def child(folder: Path) -> None:
    asyncio.run(_index(TellingStore(folder / "index.db", embedder=SeededEmbedder(), create=True), folder / "files"))


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
        [sys.executable, "-m", "tests.hardening.durability", "--child", str(folder)], stdout=subprocess.PIPE, cwd=ROOT
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
    connection.close()
    return [id for id in acknowledged if id not in held]


async def contents(file: Path) -> dict[str, str]:
    store = SQLiteStore(file, embedder=SeededEmbedder(), create=True)
    assert await store.verify() == []
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
    asyncio.run(_index(SQLiteStore(folder / "index.db", embedder=SeededEmbedder(), create=True), folder / "files"))
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


class NotingStore(SQLiteStore):
    """Notes what was acknowledged in a file of its own, after it was."""

    async def add(self, documents: Iterable[Any]) -> int:
        given = list(documents)
        added = await super().add(given)
        notes = os.open(f"{self.path}.notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.lseek(notes, 0, os.SEEK_END)
        os.write(notes, (json.dumps([one["id"] for one in given]) + "\n").encode())
        os.close(notes)
        return added


async def _write_some(path: Path) -> None:
    chance = random.Random(1)
    store = NotingStore(path, embedder=SeededEmbedder(), create=True)
    for step in range(40):
        words = " ".join(f"word{chance.randrange(500)}" for _ in range(60))
        count = chance.choice([1, 3, 40])
        await store.add([{"id": f"{step}-{at}", "text": f"{words} {at}"} for at in range(count)])
        if step % 10 == 9:
            await store.delete([f"{step - 5}-0"])
            await store.add([{"id": f"{step - 5}-0", "text": "came back"}])
    await store.close()


def power_test(folder: Path, *, cuts: int, seed: int = 0) -> dict[str, Any]:
    """Cut the power at that many places of one writer's work; what was acknowledged before must be there."""
    chance = random.Random(seed)
    work = (folder / "work").resolve()
    work.mkdir()
    done = recorded(work, "tests.hardening.durability", "--write", str(work / "index.db"))
    acknowledged, lost, damaged = 0, 0, 0
    for number in range(cuts):
        place = chance.randrange(1, len(done) + 1)
        image = folder / f"cut{number}"
        image.mkdir()
        notes = b""
        for path, content in disk(done[:place], chance).items():
            if not path.endswith(".notes"):
                (image / Path(path).name).write_bytes(content)
        notes = b"".join(one.data for one in done[:place] if one.path.endswith(".notes"))
        ids = sorted({id for line in notes.splitlines() for id in json.loads(line)})
        acknowledged += len(ids)
        missing, broken = asyncio.run(_after_cut(image / "index.db", ids))
        lost, damaged = lost + missing, damaged + broken
    return {"cuts": cuts, "acknowledged": acknowledged, "lost": lost, "damaged": damaged}


async def _after_cut(path: Path, ids: list[str]) -> tuple[int, int]:
    """Return how many ids are missing, and whether anything else is wrong with the file."""
    store = SQLiteStore(path, embedder=SeededEmbedder(), create=True)
    try:
        held = set(await store.ids())
        # Between its deletion and its return a document is rightly away.
        missing = [id for id in ids if id not in held and not id.endswith("4-0")]
        return len(missing), int(bool(await store.verify()))
    finally:
        await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="three kills, no result file")
    parser.add_argument("--cuts", type=int, default=100, help="power cuts (Linux with a C compiler)")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return
    if args.write:
        asyncio.run(_write_some(args.write))
        return
    with tempfile.TemporaryDirectory() as folder:
        report = crash_test(Path(folder), kills=3 if args.quick else args.kills, seed=args.seed)
    with tempfile.TemporaryDirectory() as folder:
        report["power"] = power_test(Path(folder), cuts=3 if args.quick else args.cuts, seed=args.seed)
    print(json.dumps(report))
    if not args.quick:
        print("written:", write_results("durability", report).name)
    power = report["power"]
    kept = report["lost"] == power["lost"] == power["damaged"] == 0
    sys.exit(0 if kept and report["equals_an_uninterrupted_index"] else 1)


if __name__ == "__main__":
    main()
