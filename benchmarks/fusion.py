"""RRF and one score fusion of 2–10 lists × 100 / 1,000 / 10,000 hits, side by side with other libraries.

`python -m benchmarks.fusion` makes the peers' environments, runs everything in turns and writes
results/fusion.json. `--one-process` compares only RRF of 5 × 100 with LangChain, in turns in this process, and
prints the ratios; it needs langchain-classic in this environment.
Peers return their documents; Resift returns hits with exact sums and the record of what each is made of; a
Ranking also keeps the lists as they came in.
Times are processor time of the process, so that a busy machine disturbs them less.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import resift
from benchmarks.harness import PEERS, Peer, option_parser, peer_env, report, versions, write_results
from benchmarks.peers.fusion import langchain
from resift import Hit
from resift.ranking import fusion

REQUIREMENTS = ["langchain-classic", "llama-index-core", "haystack-ai", "ranx"]
LIBRARIES = {"rrf": ["langchain", "llama-index", "haystack", "ranx"], "comb-sum": ["haystack-sum", "ranx-sum"]}
OVERLAP = 0.5  # distinct ids / hits in all lists; between a pair of near copies and disjoint lists

Rows = list[list[tuple[str, str, float]]]


def make_lists(count: int, size: int) -> Rows:
    """Ranked lists of overlapping ids with texts of a sentence and falling scores."""
    rng = random.Random(count * 100_003 + size)
    pool = range(max(size, int(count * size * OVERLAP)))
    return [
        [
            (f"doc-{number}", f"passage {number} says something of its own", round(1 - at / size, 6))
            for at, number in enumerate(rng.sample(pool, size))
        ]
        for _ in range(count)
    ]


def as_hits(lists: Rows) -> list[list[Hit]]:
    return [[Hit(id, text, score, f"store-{at}") for id, text, score in hits] for at, hits in enumerate(lists)]


def ours(lists: list[list[Hit]], method: str) -> dict[str, Callable[[], Any]]:
    fuse = fusion.METHODS[method]
    return {
        "resift": lambda: fuse(lists),
        "resift, k=100": lambda: fuse(lists, k=100),
        "resift, Ranking with its lists": lambda: resift.fuse(lists, method=method),
    }


def median_ms(call: Callable[[], Any], repeat: int) -> float:
    call()
    return statistics.median(once_ms(call) for _ in range(repeat))


def once_ms(call: Callable[[], Any]) -> float:
    started = time.process_time()
    call()
    return (time.process_time() - started) * 1000


def measure(method: str, lists: Rows, peers: dict[str, Peer], rounds: int) -> dict[str, float]:
    """Return each subject's median over rounds in which all take turns."""
    repeat = max(1, 20_000 // sum(map(len, lists)))
    subjects = ours(as_hits(lists), method)
    for peer in peers.values():
        peer.ask({"lists": lists})
    times: dict[str, list[float]] = {name: [] for name in [*subjects, *peers]}
    for _ in range(rounds):
        for name, call in subjects.items():
            times[name].append(median_ms(call, repeat))
        for name, peer in peers.items():
            times[name].append(peer.ask({"repeat": repeat})["ms"])
    return {name: round(statistics.median(values), 4) for name, values in times.items()}


def one_process(rounds: int) -> dict[str, dict[str, float]]:
    """Return each subject's median times for RRF of 5 × 100, and their ratios to LangChain's."""
    rows = make_lists(5, 100)
    lists = as_hits(rows)
    subjects = {"langchain": langchain(rows), **ours(lists, "rrf"), "resift, k=10": lambda: fusion.rrf(lists, k=10)}
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, call in subjects.items():
            times[name].append(median_ms(call, 40))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = {name: round(ms / medians["langchain"], 3) for name, ms in medians.items()}
    return {"ms": {name: round(ms, 4) for name, ms in medians.items()}, "resift / langchain": ratios}


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("fusion", __doc__)
    parser.add_argument("--one-process", action="store_true", help="only RRF of 5 × 100 and LangChain, in this process")
    args = parser.parse_args(argv)
    if args.one_process:
        result = one_process(3 if args.quick else 60)
        for name, ratio in result["resift / langchain"].items():
            print(f"{name:30} {result['ms'][name]:9.4f} ms {ratio:6.3f} × langchain")
        if not args.quick:
            write_results("fusion_one_process", {**result, "versions": versions(["resift", "langchain-classic"])})
        return 0
    counts, sizes, rounds = ([2], [100], 1) if args.quick else ([2, 5, 10], [100, 1_000, 10_000], 7)
    python = None if args.quick else peer_env("fusion", REQUIREMENTS)
    script = PEERS / "fusion.py"
    cases = []
    for method, names in LIBRARIES.items():
        peers = {name: Peer(python, script, name) for name in names} if python else {}
        for count in counts:
            for size in sizes:
                took = measure(method, make_lists(count, size), peers, rounds)
                fastest = min((took[name] for name in peers), default=None)
                ratio = round(fastest / took["resift"], 2) if fastest else None
                cases.append(
                    {"method": method, "lists": count, "hits": size, "ms": took, "fastest peer / resift": ratio}
                )
                print(f"{method}, {count} × {size} hits", file=sys.stderr)
                for name, ms in took.items():
                    print(f"  {name:30} {ms:9.3f} ms", file=sys.stderr)
                if ratio:
                    print(f"  {'fastest peer / resift':30} {ratio:9.2f}", file=sys.stderr)
        for peer in peers.values():
            peer.close()
    report(args, {"cases": cases, "peers": REQUIREMENTS}, packages=["resift"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
