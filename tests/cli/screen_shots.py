"""Runs every command on each of several outputs, one after the other: the program behind test_screens.

    python -m tests.cli.screen_shots FOLDER 5=60 6=80 7=140 8=pipe

Each number is an open file descriptor: a pseudo-terminal of that many columns, or a pipe. One process for
all, so that models load once. Times are fixed where a table holds them; the test replaces the others.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from resift.cli.main import main
from resift.demo import DemoResult
from tests.agent.small import write_sources
from tests.evaluation.small import write_collection

MARK = "\x1e"
"""Precedes the name of each screen in the output."""

LIBRARY = """# Library

## Loans

Books go back after four weeks. A loan can be renewed twice at the desk or online, unless somebody else waits
for the book.

## Fees

A late book costs 20 cents a day.
"""
CANTEEN = """\
Lunch is served from noon to two. The kitchen closes at three, and nobody may keep food there over night.
"""
TRAVEL = """\
id,title,text
t1,Travel costs,The head of the unit signs off travel costs before the journey.
t2,Trains,Trains are preferred to planes for journeys under six hours.
"""
HANDBOOK = {
    "library.md": LIBRARY,
    "kitchen/opening-hours-and-rules-of-the-canteen.txt": CANTEEN,
    "travel.csv": TRAVEL,
    "図書館.txt": "図書館の本は四週間借りることができます。延長は二回までです。\n",
    "logo.png": "\x89PNG\r\n\x1a\n\x00\x00",
}
NOTES = [
    "The head of the unit signs off travel costs before the journey begins, and the office books the train.",
    "Lunch is served at noon.",
    "Receipts for travel costs must be handed in within two weeks after the journey, with the form T7.",
]
LISTS = {
    "words": [("handbook/travel-costs-and-receipts.md#approval", 12.5), ("t1", 9.25), ("faq/lunch.md", 3.0)],
    "vectors": [("t1", 0.91), ("handbook/travel-costs-and-receipts.md#approval", 0.88), ("t7", 0.6)],
}
PIPELINE = """\
stores:
  - {name: docs, kind: sqlite, path: library.db, mode: hybrid}
fusion: {method: rrf}
rerank: {kind: cross-encoder}
k: 5
"""
WRONG = "stores:\n  - {name: docs, kind: sqlit, path: library.db}\nfusoin: {method: rrf}\n"

ASKED = "how long may I keep a book?"
CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
MESSAGES = [
    {"id": 1, "method": "initialize", "params": CLIENT},
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
    {"id": 3, "method": "tools/call", "params": {"name": "search", "arguments": {"query": ASKED, "k": 1}}},
]
"""What an assistant sends over standard input."""

SCREENS: dict[str, list[str]] = {
    "index": ["index handbook --store library.db", "index handbook --store library.db -v"],
    "init": ["init --store library.db -o found.yaml", "init --store missing.db -o other.yaml"],
    "search": [
        f"search {ASKED} --store library.db -k 3",
        f"search {ASKED} --store library.db -k 2 --explain",
        f"search {ASKED} --store library.db -k 1 --full",
        f"search {ASKED} --store library.db --ids",
        f"search {ASKED} --store library.db -k 2 --scores probability",
        "search 本 延長 --store library.db -k 1",
        "search zyzzyva --store library.db --text-only",
    ],
    "rerank": ["rerank 'who signs off travel costs?' notes.txt", "rerank 'travel costs' notes.jsonl -k 2"],
    "fuse": ["fuse words.jsonl vectors.jsonl", "fuse words.jsonl vectors.jsonl --compare"],
    "explain": ["explain ranking.json", "explain ranking.json --id library.md#1"],
    "eval": [
        "eval small --pipeline bm25 --pipeline rrf --cache cache",
        "eval small --pipeline bm25 --cache cache --per-query --measures nDCG@10",
    ],
    "compare": ["compare small bm25 dense --cache cache"],
    "record": ["record small --pipeline rrf -o run.jsonl --cache cache"],
    "tune": ["tune run.jsonl --budget 10"],
    "calibrate": ["calibrate judged.jsonl"],
    "report": ["report cost events.jsonl"],
    "config": ["config check pipeline.yaml", "config show pipeline.yaml", "config check wrong.yaml"],
    "doctor": ["doctor", "doctor --store library.db"],
    "demo": ["demo"],
    "graph": ["graph build sources -o fruit.lbug", "graph info fruit.lbug"],
    "ask": [f"ask {ASKED} --store library.db", "ask How many bees live in a hive? --pack fruit.lbug -k 2 --explain"],
    "store": ["store optimize library.db"],
    "batch": ["batch rerank questions.jsonl -o reranked --workers 1"],
    "bench": ["bench --checkout handbook"],  # benchmarks print facts about the machine
    "mcp": ["mcp --store library.db", "mcp"],
    "serve": ["serve --store library.db --embedder none --port 0 --drain-delay 0", "serve --store missing.db"],
    "completion": ["completion csh"],  # the scripts are for shells: see test_completion
}
"""Command -> what is run of it, in this order: later ones use what earlier ones wrote."""


def write_files(folder: Path) -> None:
    """Write what the commands read."""
    for name, text in HANDBOOK.items():
        path = folder / "handbook" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("latin-1" if name.endswith(".png") else "utf-8"))
    write_collection(folder / "small")
    write_sources(folder / "sources")
    files = {
        "notes.txt": "\n".join(NOTES),
        "notes.jsonl": _jsonl({"id": f"n{n}", "text": text} for n, text in enumerate(NOTES)),
        "pipeline.yaml": PIPELINE,
        "wrong.yaml": WRONG,
        "events.jsonl": _jsonl(
            {
                "time": "2026-11-18T09:00:00Z",
                "event": "provider_billed",
                "provider": "voyage",
                "model": "rerank-2.5",
                "tokens": 1000 * n,
                "search_units": 0,
                "cost_usd": 0.00005 * n,
                "estimated": False,
                "price_checked": True,
            }
            for n in range(1, 9)
        ),
        "judged.jsonl": _jsonl({"score": n % 17 - 8, "label": int(n % 17 + n % 5 > 10)} for n in range(200)),
        "questions.jsonl": _jsonl([{"query": "travel costs", "candidates": NOTES}]),
    }
    for name, hits in LISTS.items():
        files[f"{name}.jsonl"] = _jsonl({"id": id, "score": score, "text": NOTES[0]} for id, score in hits)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _jsonl(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def share_work() -> None:
    """Show the same times in each run, and do slow work once, without other processes."""
    from resift import demo as running
    from resift.batch.engines import LocalEngine
    from resift.batch.shards import run_shard
    from resift.cli import doctor
    from resift.evaluation import runner as evaluating

    findings = functools.cache(lambda: check_all([]))
    check_all, doctor._check_all = doctor._check_all, lambda required, *, probe: findings()
    LocalEngine.run = lambda self, work, shards, folder, *, on_rows: (
        run_shard(work, shard, folder) for shard in shards
    )

    questions, run_demo = running.questions, running.run_demo
    running.questions = lambda: questions()[42:48]

    kept: list[DemoResult] = []

    async def once(**_):
        if not kept:
            found = await run_demo()
            # What the ways are worth is for other tests to say: here they are looked at.
            rows = tuple(
                replace(row, ndcg=0.6 + at / 16, mrr=0.7 + at / 16, p50_ms=12.3) for at, row in enumerate(found.rows)
            )
            kept.append(replace(found, rows=rows, index_s=1.2, total_s=3.4))
        return kept[0]

    running.run_demo = once
    fixed = {"p50": 12.3, "p95": 45.6, "p99": 78.9}
    evaluating.Outcome.latency = property(lambda outcome: fixed if outcome.answers else {})


def shoot(words: list[str]) -> None:
    """Run one command and write what it and its children say to stderr behind its output."""
    sys.stdout.flush()
    with tempfile.NamedTemporaryFile("w+") as expected:
        others = {"serve": lambda: client(Path(expected.name)), "mcp": assistant}
        with redirected(2, expected.fileno()), others.get(words[0], contextlib.nullcontext)():
            try:
                code = main(words)
            except SystemExit as exc:
                code = exc.code
            sys.stdout.flush()
        expected.seek(0)
        for line in expected:
            sys.stdout.write(f"2> {line}")
    if code:
        sys.stdout.write(f"exit code {code}\n")


@contextlib.contextmanager
def redirected(number: int, other: int) -> Iterator[None]:
    """Let a descriptor stand for another file, also for processes that are started."""
    before = os.dup(number)
    os.dup2(other, number)
    try:
        yield
    finally:
        os.dup2(before, number)
        os.close(before)


@contextlib.contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run a function in another thread, which is notified when the command ends."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=[over])
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def assistant() -> Iterator[None]:
    """Be on the other side of standard input and output, and show what is answered."""
    (hears, asks), (answers, says) = os.pipe(), os.pipe()
    screen = os.dup(1)

    def talk(over: threading.Event) -> None:
        with open(asks, "wb", buffering=0) as to, open(answers, "rb") as back:
            for message in MESSAGES:
                # A command that ended without an answer has closed its side.
                with contextlib.suppress(BrokenPipeError):
                    to.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
                    if "id" in message:
                        os.write(screen, back.readline())

    with beside(talk), redirected(0, hears), redirected(1, says):
        os.close(hears)
        os.close(says)
        yield
    os.close(screen)


@contextlib.contextmanager
def client(expected: Path) -> Iterator[None]:
    """Search once when the server in this process is ready, then press Ctrl+C."""

    def visit(over: threading.Event) -> None:
        if until(lambda: "\nready:" in expected.read_text(), over):
            address = re.search(r"http://[\d.:]+", expected.read_text())
            assert address is not None
            search = json.dumps({"query": ASKED, "k": 1}).encode()
            try:
                urllib.request.urlopen(f"{address[0]}/v1/search", search, timeout=30).close()
            finally:
                os.kill(os.getpid(), signal.SIGINT)

    with beside(visit):
        yield


def until(look: Callable[[], Any], over: threading.Event) -> Any:
    """Look until something is there, or it is all over."""
    while not (found := look()):
        if over.wait(0.02):
            return None
    return found


def all_screens(folder: Path, name: str) -> None:
    """Run everything in a folder of its own on the present standard output."""
    place = folder / name
    place.mkdir()
    os.chdir(place)
    write_files(place)
    for command, lines in SCREENS.items():
        for line in lines:
            sys.stdout.write(f"{MARK}{command}{MARK}{line}\n")
            if command == "explain" and not Path("ranking.json").exists():
                with open("ranking.json", "w") as file, contextlib.redirect_stdout(file):
                    main(shlex.split(f"search {ASKED} --store library.db -k 3 --explain --json"))
            shoot(shlex.split(line))
            sys.stdout.flush()


def run(arguments: list[str]) -> None:
    """Run everything on each output."""
    share_work()
    folder = Path(arguments[0]).resolve()
    for given in arguments[1:]:
        number, name = given.split("=")
        os.dup2(int(number), 1)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        if name != "pipe":
            os.dup2(int(number), 0)
        all_screens(folder, name)
        sys.stdout.flush()
        os.close(int(number))


if __name__ == "__main__":
    run(sys.argv[1:])
