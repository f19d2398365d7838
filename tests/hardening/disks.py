"""Full disks and killed processes: what was acknowledged is there, and a file is the old or the new one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import tempfile
from pathlib import Path

from resift._internal.files import atomic_write
from resift.errors import ResiftError
from resift.stores.sqlite import SQLiteStore
from tests.hardening.damage import SeededEmbedder
from tests.hardening.durability import crash_test
from tests.hardening.report import Outcome


def attack_kills(seed: int, count: int) -> Outcome:
    """Kill an indexing process `count` times; every acknowledged document must be there."""
    outcome = Outcome("kills of a process that indexes")
    with tempfile.TemporaryDirectory() as folder:
        found = crash_test(Path(folder), kills=count, seed=seed)
    outcome.tried = count
    outcome.figures = found
    for _ in range(found["lost"]):
        outcome.fail("an acknowledged document was lost")
    outcome.check(found["equals_an_uninterrupted_index"], "the index differs from one never interrupted")
    return outcome


def attack_full_disks(seed: int, count: int) -> Outcome:
    """Let the disk be full after a random number of bytes, `count` times, for three kinds of writers."""
    outcome = Outcome("full disks")
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for at in range(count):
            outcome.tried += 1
            place = Path(folder) / str(at)
            place.mkdir()
            (_sqlite, _text_file)[at % 2](outcome, place, draw.randrange(1, 60_000))
    return outcome


def _sqlite(outcome: Outcome, folder: Path, room: int) -> None:
    path = folder / "index.db"
    asyncio.run(_add(path, 0, 40))
    ended = _with_room(path.stat().st_size + room, lambda: asyncio.run(_add(path, 40, 400)))
    outcome.check(ended in ("done", "named"), f"SQLite with {room} bytes left: {ended}")
    held = asyncio.run(_ids(path))
    outcome.check(set(range(40)) <= held, f"SQLite lost acknowledged documents with {room} bytes left")
    # All of the batch or nothing of it, and it can be written once there is room.
    outcome.check(len(held) in (40, 400), f"SQLite kept {len(held)} of 400: half a batch")
    asyncio.run(_add(path, 40, 400))
    outcome.check(len(asyncio.run(_ids(path))) == 400, "SQLite did not take the batch afterwards")


async def _add(path: Path, first: int, last: int) -> None:
    store = SQLiteStore(path, embedder=SeededEmbedder(), create=True)
    try:
        await store.add({"id": str(at), "text": f"document {at} " + "words " * 20} for at in range(first, last))
    finally:
        await store.close()


async def _ids(path: Path) -> set[int]:
    store = SQLiteStore(path, embedder=SeededEmbedder())
    try:
        return {int(id) for id in await store.ids()}
    finally:
        await store.close()


def _text_file(outcome: Outcome, folder: Path, room: int) -> None:
    path = folder / "report.html"
    atomic_write(path, "old")
    ended = _with_room(room, lambda: atomic_write(path, "new" * 30_000))
    outcome.check(ended in ("named", "OSError", "done"), f"a text file: {ended}")
    outcome.check(path.read_text() in ("old", "new" * 30_000), "half a text file")
    outcome.check(len(list(folder.iterdir())) == 1, "a part of a text file stayed")


def _with_room(room: int, write) -> str:
    """Run the write in a child in which no file can grow over `room` bytes; return how it ended."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        with contextlib.redirect_stderr(None):
            try:
                write()
            except ResiftError:
                os._exit(10)
            except OSError:
                os._exit(11)
            except BaseException:
                os._exit(12)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "done", 10: "named", 11: "OSError", 12: "raw error"}.get(code, f"ended with {code}")
