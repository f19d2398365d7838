"""CPU time of reading results of other systems: 100 documents of each shape into hits.

    python -m benchmarks.adapters            # exit code 1 above the target
    python -m benchmarks.adapters --quick

The target is 1.5 ms of CPU per 100 documents. Each document has a title and a body of 60 words.
"""

from __future__ import annotations

import contextlib
import importlib
import sqlite3
import sys
import time

from benchmarks.harness import option_parser, report
from resift.external.candidates import read_hits
from tests.external.recorded import RESPONSES, SOURCES

TARGET_MS = 1.5
COUNT = 100
WORDS = " ".join(f"word{i}" for i in range(60))


def enlarge(value, number=0):
    """Return the response with lists of three results repeated up to COUNT, each with its own id."""
    if isinstance(value, list) and len(value) == len(SOURCES):
        return [_renumber(value[i % len(value)], i) for i in range(COUNT)]
    if isinstance(value, list):
        return [enlarge(item) for item in value]
    return {key: enlarge(item) for key, item in value.items()} if isinstance(value, dict) else value


def _renumber(item, number):
    if isinstance(item, dict):
        return {key: _renumber(value, number) for key, value in item.items()}
    if isinstance(item, str) and item in ("d1", "d2", "d3"):
        return f"d{number}"
    return f"{item} {WORDS}" if isinstance(item, str) and " " in item else item


def measure(documents, rounds: int) -> float:
    """Return milliseconds of CPU per call, the best of `rounds`."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        for _ in range(10):
            read_hits(documents, unique=False)
        best = min(best, (time.process_time() - started) * 100)
    return best


def tables() -> dict[str, object]:
    """Return a frame of each library that is installed, and rows of SQLite."""
    rows = [{"id": f"d{i}", "title": f"Title {i}", "body": f"{WORDS} {i}", "year": 2000 + i} for i in range(COUNT)]
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    connection.execute("CREATE TABLE docs (id, title, body, year)")
    connection.executemany("INSERT INTO docs VALUES (:id, :title, :body, :year)", rows)
    found = {"dicts": rows, "sqlite3 rows": connection.execute("SELECT * FROM docs").fetchall()}
    for library, make in (
        ("pandas", lambda module: module.DataFrame(rows)),
        ("polars", lambda module: module.DataFrame(rows)),
        ("pyarrow", lambda module: module.Table.from_pylist(rows)),
        ("langchain_core.documents", lambda module: [module.Document(row["body"], id=row["id"]) for row in rows]),
    ):
        with contextlib.suppress(ImportError):
            found[library] = make(importlib.import_module(library))
    return found


def main(argv: list[str] | None = None) -> int:
    args = option_parser("adapters", __doc__).parse_args(argv)
    rounds = 3 if args.quick else 15
    shapes = {name: enlarge(response) for name, response in RESPONSES.items()} | tables()
    times = {
        name: round(measure(documents, rounds), 3)
        for name, documents in shapes.items()
        if len(read_hits(documents, unique=False)) >= COUNT
    }
    slowest_first = dict(sorted(times.items(), key=lambda pair: -pair[1]))
    data = {"documents": COUNT, "target_ms": TARGET_MS, "cpu_ms": slowest_first}
    report(args, data, packages=["resift", "pandas", "polars", "pyarrow", "langchain-core"])
    return 0 if max(times.values()) <= TARGET_MS or args.quick else 1


if __name__ == "__main__":
    sys.exit(main())
