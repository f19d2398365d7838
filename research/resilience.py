"""What resilience costs: breaker and budget, an open breaker, BM25 over a pool; and 100,000 random steps.

    python -m research.resilience [--quick]

`--quick` runs fewer rounds, 10,000 steps, and asks the peers only where their environment exists already.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from pathlib import Path

from benchmarks.harness import ENVS, HERE, Peer, interleaved_ms, median_ms, peer_env, write_results
from resift.deadline import Deadline
from resift.rerankers.semantic_bm25 import PoolBM25
from resift.rerankers.score_cache import CachedScorer
from resift.rerankers.score_cache import MemoryScores
from resift.resilience import Budget, CircuitBreaker, Tiered
from resift.types import Hit, Scores

PEERS = ("numpy", "rank_bm25", "bm25s")


class Instant:
    """A scorer that costs nothing, so that only what is around it is measured."""

    name = model = "instant"
    pointwise = True

    async def score(self, query, hits, *, deadline):
        return Scores([0.5] * len(hits), self.name)


def pool(chunks: int, tokens: int, seed: int) -> tuple[str, list[str]]:
    """Return a query of eight words and texts whose words follow Zipf's law."""
    draw = random.Random(seed)
    vocabulary = [
        "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 11))) for _ in range(5000)
    ]
    weights = [1 / rank for rank in range(1, 5001)]
    texts = [" ".join(draw.choices(vocabulary, weights, k=tokens)) for _ in range(chunks)]
    return " ".join(draw.choices(vocabulary[:400], k=8)), texts


def bookkeeping(rounds: int, calls: int = 200) -> dict[str, float]:
    """Return µs per call; short rounds, so that other work on the machine disturbs few of them."""
    breaker, budget, deadline = CircuitBreaker(), Budget(), Deadline.after(3600)
    shut = CircuitBreaker()
    shut.force_open()

    def admitted():
        for _ in range(calls):
            if budget.allows(100, deadline, provider="voyage"):
                permit = breaker.acquire()
                permit.success()
                budget.record(100, 0.5, provider="voyage")

    def refused():
        for _ in range(calls):
            shut.refuses()

    taken = interleaved_ms({"breaker_and_budget_us": admitted, "refusal_us": refused}, rounds)
    return {name: value / calls * 1000 for name, value in taken.items()}


def open_breaker(rounds: int) -> dict[str, float]:
    """Return the median time of a request with its breaker open, and of the fallback alone."""
    hits = [Hit(f"d{at}", text) for at, text in enumerate(pool(100, 100, 1)[1])]
    shut = CircuitBreaker()
    shut.force_open()
    subjects = {"open": Tiered(Instant(), Instant(), breaker=shut), "fallback_alone": Instant()}
    loop = asyncio.new_event_loop()
    try:
        taken = interleaved_ms(
            {
                name: lambda scorer=scorer: loop.run_until_complete(
                    scorer.score("q", hits, deadline=Deadline.after(10))
                )
                for name, scorer in subjects.items()
            },
            rounds,
        )
    finally:
        loop.close()
    return {"open_breaker_ms": taken["open"], "open_breaker_adds_ms": taken["open"] - taken["fallback_alone"]}


def cache_lookup(rounds: int) -> dict[str, float]:
    """Return the median time to answer a pool of 100 from the memory cache."""
    hits = [Hit(f"d{at}", text) for at, text in enumerate(pool(100, 100, 2)[1])]
    cached = CachedScorer(Instant(), MemoryScores())
    loop = asyncio.new_event_loop()
    try:
        taken = median_ms(
            lambda: loop.run_until_complete(cached.score("q", hits, deadline=Deadline.never())), rounds
        )
    finally:
        loop.close()
    return {"cache_100_ms": taken}


def bm25(rounds: int, *, peers: bool) -> dict[str, object]:
    """Return medians over fresh pools of 100 chunks of 100 tokens; all take turns on the same pools."""
    times: dict[str, list[float]] = {}
    agreed = 0
    python = peer_env("bm25", PEERS) if peers else None
    peer = Peer(python, HERE / "peer_bm25.py") if python else None
    try:
        for number in range(-1, rounds):
            query, texts = pool(100, 100, number)
            taken, best = _ours(query, texts)
            if peer:
                for engine in ("rank_bm25", "bm25s"):
                    answer = peer.ask({"engine": engine, "query": query, "texts": texts})
                    taken[engine] = answer["ms"]
                    taken[f"{engine}_cpu"] = answer["cpu_ms"]
                    agreed += number >= 0 and answer["best"] == best
            if number >= 0:  # the first pool warms everybody up
                for name, value in taken.items():
                    times.setdefault(name, []).append(value)
    finally:
        if peer:
            peer.close()
    medians = {name: statistics.median(values) for name, values in times.items()}
    told: dict[str, object] = {"median_ms": {name: round(value, 3) for name, value in medians.items()}}
    if peer:
        told["times_faster_than"] = {
            name: round(medians[name] / medians["resift"], 2) for name in ("rank_bm25", "bm25s")
        }
        told["same_best_text"] = f"{agreed} of {2 * rounds}"
    return told


def _ours(query: str, texts: list[str]) -> tuple[dict[str, float], int]:
    """Return wall and processor time, with fresh counts and with cached ones, and the best text."""
    scorer = PoolBM25()
    started, cpu = time.perf_counter(), time.process_time()
    scores = scorer.scores(query, texts)
    counted, cpu = time.perf_counter(), time.process_time() - cpu
    scorer.scores(query, texts)
    done = time.perf_counter()
    taken = {"resift": counted - started, "resift_cpu": cpu, "resift_counts_cached": done - counted}
    best = max(range(len(texts)), key=scores.__getitem__)
    return {name: value * 1000 for name, value in taken.items()}, best


def machine_steps(wanted: int) -> dict[str, object]:
    """Drive the breaker through at least that many random steps; raises where a rule is broken."""
    sys.path.insert(0, str(HERE.parent / "tests" / "resilience"))
    from breaker_machine import BreakerMachine
    from hypothesis import HealthCheck, settings
    from hypothesis.database import InMemoryExampleDatabase
    from hypothesis.stateful import run_state_machine_as_test

    BreakerMachine.steps = runs = 0
    started = time.perf_counter()
    while BreakerMachine.steps < wanted:
        runs += 1
        run_state_machine_as_test(
            BreakerMachine,
            settings=settings(
                max_examples=500,
                stateful_step_count=80,
                deadline=None,
                database=InMemoryExampleDatabase(),
                suppress_health_check=list(HealthCheck),
            ),
        )
    return {
        "steps": BreakerMachine.steps,
        "violations": 0,
        "seconds": round(time.perf_counter() - started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds; peers only where installed")
    quick = parser.parse_args().quick
    peers = not quick or (Path(ENVS) / "bm25").exists()
    cost = {
        **bookkeeping(50 if quick else 500),
        **open_breaker(50 if quick else 500),
        **cache_lookup(50 if quick else 500),
    }
    results = {
        "cost": {name: round(value, 4) for name, value in cost.items()},
        "bm25_100_chunks_of_100_tokens": bm25(10 if quick else 60, peers=peers),
        "breaker_machine": machine_steps(10_000 if quick else 100_000),
    }
    targets = {
        "breaker and budget under 10 µs": cost["breaker_and_budget_us"] < 10,
        "open breaker adds under 1 ms": cost["open_breaker_adds_ms"] < 1,
        "BM25 under 3 ms": results["bm25_100_chunks_of_100_tokens"]["median_ms"]["resift"] < 3,
    }
    results["targets_met"] = targets
    print(json.dumps(results, indent=2, ensure_ascii=False))
    if not quick:
        print(write_results("resilience", results))


if __name__ == "__main__":
    main()
