"""Runs every command on each of several outputs, one after the other: the program behind test_screens.

    python -m tests.cli.screen_shots FOLDER 5=60 6=80 7=140 8=pipe

Each number is an open file descriptor: a pseudo-terminal of that many columns, or a pipe. One process for
all, so that models load once. Times are fixed where a table holds them; the rest is normalised by the test.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from resift.cli.main import main
from resift.demo.running import Shown
from tests.agent.small import write_sources
from tests.evaluation.small import write_collection

MARK = "\x1e"
"""Stands before the name of each screen in the output."""

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
SCREENS: dict[str, list[str]] = {
    "index": ["index handbook --store library.db", "index handbook --store library.db -v"],
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
    "config": ["config check pipeline.yaml", "config show pipeline.yaml", "config check wrong.yaml"],
    "doctor": ["doctor", "doctor --store library.db"],
    "demo": ["demo"],
    "graph": ["graph build sources -o fruit.lbug", "graph info fruit.lbug"],
    "ask": [
        f"ask {ASKED} --store library.db",
        "ask How many bees live in a hive? --pack fruit.lbug -k 2 --explain",
    ],
    "store": ["store optimise library.db"],
    "batch": ["batch rerank questions.jsonl -o reranked --workers 1"],
    "bench": ["bench --checkout handbook"],
    "mcp": ["mcp"],
    "serve": ["serve --store missing.db"],
    "sbom": ["sbom -o bill.json"],
    "completion": ["completion tcsh"],
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
        "judged.jsonl": _jsonl({"score": n % 17 - 8, "label": int(n % 17 + n % 5 > 10)} for n in range(200)),
        "questions.jsonl": _jsonl([{"query": "travel costs", "candidates": NOTES}]),
    }
    for name, hits in LISTS.items():
        files[f"{name}.jsonl"] = _jsonl({"id": id, "score": score, "text": NOTES[0]} for id, score in hits)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _jsonl(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def fix_times() -> None:
    """Let tables show the same times in each run, and the demo be computed once, of a few questions."""
    from resift.demo import running
    from resift.evaluation import latency as timing
    from resift.evaluation import running as evaluating

    questions, run_demo = running.questions, running.run_demo
    running.questions = lambda: questions()[20:26]

    kept: list[Shown] = []

    async def once(**_):
        if not kept:
            found = await run_demo()
            # What the ways are worth is for other tests to say: here they are looked at.
            rows = tuple(
                replace(row, ndcg=0.6 + at / 16, mrr=0.7 + at / 16, p50_ms=12.3)
                for at, row in enumerate(found.rows)
            )
            kept.append(replace(found, rows=rows, index_s=1.2, total_s=3.4))
        return kept[0]

    running.run_demo = once
    fixed = {"p50": 12.3, "p95": 45.6, "p99": 78.9}
    for module in (timing, evaluating):
        if hasattr(module, "latency"):
            module.latency = lambda times: fixed if times else {}


def shoot(words: list[str]) -> None:
    """Run one command and write what it says to stderr behind its output."""
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        try:
            code = main(words)
        except SystemExit as exc:
            code = exc.code
    for line in told.getvalue().splitlines():
        sys.stdout.write(f"2> {line}\n")
    if code:
        sys.stdout.write(f"exit code {code}\n")


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
    fix_times()
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
