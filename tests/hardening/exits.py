"""Programs that end at a random moment while threads of the library work: exit code, output, and the file.

Every program does one kind of work in three daemon threads and ends in one of four ways: its main thread
returns, calls sys.exit, is interrupted by Ctrl-C, or gets SIGTERM. The exit code is
that of the program, and no error is printed.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.hardening.report import ROOT, Outcome

LIMIT_S = 5.0
"""How long a process may take to end."""

WORK = {
    "index": "add(f'{me}-{n}')",
    "search": "index.search(f'red fox {n}')",
    "search with a deadline": "index.search(f'red fox {n}', deadline_s=0.02)",
    "ask": "index.ask('What does the red fox do?')",
    "rerank": "resift.rerank(f'red fox {n}', texts)",
    "rerank with a deadline": "resift.rerank(f'red fox {n}', texts, deadline_s=0.02)",
    "embed": "resift.Embedder().embed_sync(['ab ' * 20_000, f'{n}'], kind='document')",
    "rerank in an event loop": "asyncio.run(gather(resift.arerank(f'fox {n}', texts) for _ in range(4)))",
    "search in an event loop": "asyncio.run(gather(index.asearch(f'fox {n}', deadline_s=d) for d in (0.01, 0.05, 1)))",
    "table": "asyncio.run(table.search('fox', k=5))",
    "fuse": "resift.fuse([texts, texts[::-1]])",
}  # fmt: skip

PROGRAM = """
import asyncio, os, random, sqlite3, sys, threading, time
import resift
from resift.stores.tables import SQLiteTable
folder, end, wait_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
index = resift.Index(folder + "/docs.db")
table = SQLiteTable(folder + "/rows.db", "rows")
texts = [f"{{i}} the red fox runs over the hill " * 12 for i in range(30)]
def say(id):
    os.write(1, f"{{id}}\\n".encode())
def add(name):
    index.add({{"id": f"{{name}}-{{i}}", "text": f"new {{name}} the red fox {{i}}"}} for i in range(20))
    say(f"{{name}}-19")
async def gather(coroutines):
    return await asyncio.gather(*coroutines)
def work(me, n):
    {work}
def loop(me):
    n = 0
    while True:
        try:
            work(me, n)
        except resift.ResiftError:
            return  # work that is refused because the interpreter ends
        n += 1
work("w", 0)
say("ready")
try:
    for number in range(3):
        threading.Thread(target=loop, args=(f"t{{number}}-{{os.getpid()}}",), daemon=True).start()
    if end == "SIGINT":
        loop(f"m{{os.getpid()}}")
    time.sleep(60 if end == "SIGTERM" else wait_s)
except KeyboardInterrupt:
    sys.exit(130)
if end == "sys.exit":
    sys.exit(7)
"""
NOISE = ("Traceback", "Exception ignored", "never awaited", "was destroyed", "never retrieved", "Fatal", "Error in")
CODES = {"return": 0, "sys.exit": 7, "SIGINT": 130, "SIGTERM": -signal.SIGTERM}


def attack(seed: int, count: int) -> Outcome:
    """End `count` programs, in turn by work and by the way they end."""
    outcome = Outcome("programs that end while threads of the library work")
    # A shell in the background ignores the signal, and what it starts inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    draw = random.Random(seed)
    slowest = (0.0, "")
    turns = [(name, end) for end in CODES for name in WORK]
    draw.shuffle(turns)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_files(folder)
        added = set()
        for turn in range(count):
            work, end = turns[turn % len(turns)]
            took_s, acknowledged = _run(outcome, folder, work, end, draw.uniform(0.0, 0.5))
            slowest = max(slowest, (took_s, f"{work}, {end}"))
            added |= acknowledged
        outcome.check(not (problems := asyncio.run(find_damage(folder / "docs.db"))), f"the index: {problems}")
        lost = added - asyncio.run(_ids(folder / "docs.db"))
        outcome.check(not lost, f"{len(lost)} acknowledged documents were lost")
    outcome.figures = {"slowest end": f"{slowest[0]:.2f} s ({slowest[1]})", "added": len(added)}
    return outcome


def _write_files(folder: Path) -> None:
    import sqlite3
    from contextlib import closing

    import resift

    texts = [f"{i} the red fox runs over hill {i % 7}" for i in range(100)]
    with resift.Index(folder / "docs.db") as index:
        index.add(texts)
    with closing(sqlite3.connect(folder / "rows.db")) as connection, connection:
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT)")
        connection.executemany("INSERT INTO rows VALUES (?, ?)", enumerate(texts))


def _run(outcome: Outcome, folder: Path, work: str, end: str, wait_s: float) -> tuple[float, set[str]]:
    """Run one program; return how long its end took, and the ids that it acknowledged."""
    program = PROGRAM.format(work=WORK[work])
    words = [sys.executable, "-c", program, str(folder), end, str(wait_s)]
    where = f"{work}, {end} after {wait_s:.2f} s"
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = []
        while (line := process.stdout.readline().decode().strip()) != "ready":
            if not line:
                outcome.fail(f"{where}: did not start: {process.communicate()[1].decode()[-300:]}")
                return 0.0, set()
            lines.append(line)
        if end in ("SIGINT", "SIGTERM"):
            time.sleep(wait_s)
            process.send_signal(getattr(signal, end))
        expected_end = time.monotonic() + (0.0 if end.startswith("SIG") else wait_s)
        try:
            out, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            outcome.fail(f"{where}: did not end")
        took_s = time.monotonic() - expected_end
    outcome.tried += 1
    outcome.check(took_s <= LIMIT_S, f"{where}: ended after {took_s:.1f} s")
    outcome.check(process.returncode == CODES[end], f"{where}: exit code {process.returncode}")
    said = err.decode(errors="replace").strip()
    # Threads that search while Python exits may log that they failed.
    noise = next((words for words in NOISE if words in said), None)
    outcome.check(noise is None, f"{where}: said {said[:100]} … {said[-200:]}")
    # The last line may be cut off by the end.
    return took_s, {*lines, *out.decode().split("\n")[:-1]}


async def find_damage(path: Path) -> list[str]:
    """Read every page of an index file and return what is damaged."""
    from resift.stores.sqlite import SQLiteStore

    store = SQLiteStore(path)
    try:
        return list(await store.verify())
    finally:
        await store.close()


async def _ids(path: Path) -> set[str]:
    from resift.stores.sqlite import SQLiteStore

    store = SQLiteStore(path)
    try:
        return set(await store.ids({}))
    finally:
        await store.close()
