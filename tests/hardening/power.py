"""Power cuts: a child's writes are logged, and the folder is rebuilt as a cut would leave it.

After a cut a file holds what was synced, and any part of what was written after that: each later write is
there, or not, or half. Names are changed in order, as file systems with a journal do.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from resift._internal.files import atomic_write
from resift.errors import ResiftError
from resift.stores.sqlite import SQLiteStore
from tests.hardening.damage import SeededEmbedder
from tests.hardening.report import HERE, ROOT, Outcome

BATCHES, PER_BATCH = 12, 5
CUTS_PER_RUN = 20


@dataclass
class OnDisk:
    """One file: what is surely there, and what was written since."""

    synced: bytes = b""
    later: list[tuple[str, int, bytes]] = field(default_factory=list)

    def sync(self) -> None:
        """Put everything on the disk."""
        self.synced = self._with(self.later)
        self.later = []

    def after_a_cut(self, draw: random.Random) -> bytes:
        """Return what the disk holds: later writes are there, or not, or half."""
        kept = []
        for op, at, data in self.later:
            fate = draw.random()
            if fate < 0.5:
                kept.append((op, at, data))
            elif fate < 0.65:
                kept.append((op, at, data[: draw.randrange(len(data) + 1)]))
        return self._with(kept)

    def _with(self, changes: list[tuple[str, int, bytes]]) -> bytes:
        held = bytearray(self.synced)
        for op, at, data in changes:
            if op == "t":
                del held[at:]
                held.extend(bytes(max(0, at - len(held))))
            else:
                held.extend(bytes(max(0, at - len(held))))
                held[at : at + len(data)] = data
        return bytes(held)


def attack(seed: int, count: int) -> Outcome:
    """Cut the power `count` times."""
    outcome = Outcome("power cuts that drop what was not synced")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        outcome.absent = "needs Linux and a C compiler"
        return outcome
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name).resolve()
        library = place / "write_log.so"
        source = HERE / "write_log.c"
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl", "-lpthread"], check=True)
        runs = -(-count // CUTS_PER_RUN)
        for run in range(runs):
            log = _recorded(place / f"run{run}", library, seed * 1000 + run)
            for _ in range(min(CUTS_PER_RUN, count - run * CUTS_PER_RUN)):
                outcome.tried += 1
                _cut(outcome, log, place, draw)
    return outcome


def _recorded(folder: Path, library: Path, seed: int) -> list[tuple[str, str, int, bytes]]:
    (folder / "data").mkdir(parents=True)
    env = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "WRITE_LOG": str(folder / "log"),
        "WRITE_LOG_FOLDER": str(folder / "data"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    words = [sys.executable, "-W", "ignore", "-m", "tests.hardening.power", str(folder / "data"), str(seed)]
    subprocess.run(words, env=env, check=True, cwd=ROOT)
    return list(_records((folder / "log").read_bytes(), str(folder / "data")))


def _records(log: bytes, folder: str) -> Iterator[tuple[str, str, int, bytes]]:
    head = re.compile(rb"(\w) (.*?) (-?\d+) (\d+)\n")
    at = 0
    while match := head.match(log, at):
        length = int(match[4])
        data = log[match.end() : match.end() + length]
        name = os.path.relpath(match[2].decode(), folder)
        yield match[1].decode(), name, int(match[3]), data
        at = match.end() + length


def _cut(outcome: Outcome, log: list[tuple[str, str, int, bytes]], place: Path, draw: random.Random) -> None:
    end = draw.randrange(1, len(log) + 1)
    files: dict[str, OnDisk] = {}
    acknowledged = 0
    for op, name, at, data in log[:end]:
        if name == "acknowledged":
            acknowledged += len(data)
        elif op == "u":
            files.pop(name, None)
        elif op == "r":
            files[os.path.basename(data.decode())] = files.pop(name, OnDisk())
        elif op == "s":
            if name in files:
                files[name].sync()
        else:
            files.setdefault(name, OnDisk()).later.append((op, at, data))
    rebuilt = place / "after"
    shutil.rmtree(rebuilt, ignore_errors=True)
    rebuilt.mkdir()
    for name, file in files.items():
        if not name.endswith("-shm"):  # memory of running processes: gone with the power
            (rebuilt / name).write_bytes(file.after_a_cut(draw))
    _judge(outcome, rebuilt, acknowledged, f"cut after {end} of {len(log)} changes")


def _judge(outcome: Outcome, folder: Path, acknowledged: int, when: str) -> None:
    wanted = {f"b{batch}d{at}" for batch in range(acknowledged) for at in range(PER_BATCH)}
    path = folder / "index.db"
    if acknowledged or path.exists():
        try:
            held = asyncio.run(_ids(path))
        except ResiftError as exc:
            # Before the first acknowledgement there may be no index yet; after it there must be one.
            outcome.check(not acknowledged, f"{when}: {exc}")
            return
        outcome.check(wanted <= held, f"{when}: {len(wanted - held)} acknowledged documents lost")
        outcome.check(len(held) % PER_BATCH == 0, f"{when}: half a batch is there")
        with sqlite3.connect(path) as connection:
            sound = connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
        outcome.check(sound, f"{when}: the database is damaged")
    report = folder / "report.txt"
    if acknowledged:
        text = report.read_text(encoding="utf-8") if report.exists() else ""
        versions = {_version(batch) for batch in range(acknowledged - 1, BATCHES)}
        outcome.check(text in versions, f"{when}: the report is neither old nor new")


async def _ids(path: Path) -> set[str]:
    store = SQLiteStore(path, embedder=SeededEmbedder())
    try:
        await store.search("words", k=3)
        return set(await store.ids())
    finally:
        await store.close()


def _version(batch: int) -> str:
    return f"version {batch} " * 500


async def _child(folder: Path, seed: int) -> None:
    """Add batches, each with a new version of a report, and acknowledge each by one byte."""
    draw = random.Random(seed)
    store = SQLiteStore(folder / "index.db", embedder=SeededEmbedder(), create=True)
    acknowledged = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for batch in range(BATCHES):
        await store.add(
            {"id": f"b{batch}d{at}", "text": f"words {draw.random()} " * draw.randrange(1, 60)}
            for at in range(PER_BATCH)
        )
        atomic_write(folder / "report.txt", _version(batch))
        os.write(acknowledged, b".")
    await store.close()


if __name__ == "__main__":
    asyncio.run(_child(Path(sys.argv[1]), int(sys.argv[2])))
