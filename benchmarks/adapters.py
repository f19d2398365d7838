"""CPU time of reading results of other systems: 100 documents of each shape into hits.

    python -m benchmarks.adapters            # prints a table; exit code 1 above the target
    python -m benchmarks.adapters --quick

The target is 1.5 ms of CPU per 100 documents. Each document has a title and a body of 60 words.
"""

from __future__ import annotations

import sys
import time

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


def main() -> int:
    rounds = 3 if "--quick" in sys.argv else 15
    rows = {}
    for name, response in RESPONSES.items():
        documents = enlarge(response)
        if len(read_hits(documents, unique=False)) >= COUNT:
            rows[name] = measure(documents, rounds)
    print(f"{'shape':<28}ms of CPU per {COUNT} documents")
    for name, ms in sorted(rows.items(), key=lambda pair: -pair[1]):
        print(f"{name:<28}{ms:.2f}")
    worst = max(rows.values())
    print(f"{'worst':<28}{worst:.2f} (target {TARGET_MS})")
    return 0 if worst <= TARGET_MS or "--quick" in sys.argv else 1


if __name__ == "__main__":
    sys.exit(main())
