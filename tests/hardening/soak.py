"""Many calls with a fault every few seconds: every answer whole and in time, and no memory lost."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import statistics
import time
from pathlib import Path

from resift.deadline import Deadline
from resift.pipeline import Pipeline
from resift.rerankers.hosted import HostedReranker
from resift.rerankers.rescore import rescore
from resift.rerankers.semantic_bm25 import SemanticBM25Reranker
from resift.resilience import CircuitBreaker, Tiered
from resift.stores import MemoryStore
from resift.types import Hit
from tests.hardening.report import Outcome
from tests.providers import FAULTS, ProviderServer

FAULT_EVERY_S = 10.0
FAULT_CALLS = 6
DEADLINE_S = 2.0
MB_PER_10_000 = 1.0
FLEETING = sorted(FAULTS.keys() - {"401", "403"})
"""A refused key keeps the breaker open for minutes, and the rest of the calls would reach no provider."""

ENOUGH = 1_000
"""How many calls tell a slope of memory."""

WORDS = [f"word{at}" for at in range(400)]


def attack(seed: int, count: int) -> Outcome:
    """Search `count` times over two stores and a provider that fails now and then."""
    outcome = Outcome("searches with a provider that fails every few seconds")
    logging.disable(logging.CRITICAL)
    try:
        asyncio.run(_soak(outcome, random.Random(seed), count))
    finally:
        logging.disable(logging.NOTSET)
    return outcome


async def _soak(outcome: Outcome, draw: random.Random, count: int) -> None:
    stores = [MemoryStore(name="a"), MemoryStore(name="b")]
    for store in stores:
        await store.add({"id": f"d{at}", "text": " ".join(draw.choices(WORDS, k=30))} for at in range(200))
    with ProviderServer() as server:
        hosted = HostedReranker(
            "jina", base_url=server.base_url("jina"), api_key="k", allow_loopback=True, timeout_s=0.3
        )
        # Short cooldowns that do not grow: the breaker opens and closes many times, most calls go through.
        breaker = CircuitBreaker(3, 0.5, 1, max_cooldown_s=1.0)
        tiers = Tiered(hosted, SemanticBM25Reranker(), breaker=breaker)
        pipeline = Pipeline(stores, rerank=tiers, k=10)
        if count >= ENOUGH:
            await _every_fault_once(server, hosted)
        memory, lateness, faults, degraded = [], [], 0, 0
        next_fault = time.monotonic() + min(FAULT_EVERY_S, count / 2000)
        for number in range(count):
            if time.monotonic() >= next_fault:
                next_fault += FAULT_EVERY_S
                faults += 1
                server.misbehave(draw.choice(FLEETING), times=FAULT_CALLS, at=80)
            elif faults and number % 50 == 0:
                server.behave()
            if number % 500 == 0:
                server.requests.clear()
                gc.collect()
                memory.append((number, rss_mb()))
            outcome.tried += 1
            started = time.perf_counter()
            try:
                ranking = await pipeline.search(" ".join(draw.choices(WORDS, k=4)), deadline_s=DEADLINE_S)
            except Exception as exc:
                outcome.fail(f"call {number}: {type(exc).__name__}: {exc}")
                continue
            lateness.append(time.perf_counter() - started - DEADLINE_S)
            degraded += ranking.degraded
            outcome.check(len(set(ranking.ids)) == len(ranking.ids) <= 10, f"call {number}: {ranking.ids}")
            outcome.check(not ranking.degraded or bool(ranking.reason), f"call {number}: degraded, no reason")
        await pipeline.close()
    _judge(outcome, memory, lateness, faults, degraded)


async def _every_fault_once(server: ProviderServer, hosted: HostedReranker) -> None:
    """Let memory grow to what the largest answers need: some are bombs, and their memory is kept."""
    hits = [Hit(str(at), f"word{at}") for at in range(20)]
    for name in sorted(FAULTS):
        server.misbehave(name, times=1, at=80)
        await rescore(hosted, "word1", hits, k=10, deadline=Deadline.after(1.0))
    server.behave()


def _judge(outcome: Outcome, memory: list, lateness: list[float], faults: int, degraded: int) -> None:
    warm = memory[len(memory) // 4 :]
    slope = 0.0
    if len(warm) >= 4:
        slope = statistics.linear_regression([at for at, _ in warm], [mb for _, mb in warm]).slope * 10_000
        outcome.check(slope <= MB_PER_10_000, f"memory grows by {slope:.2f} MB per 10,000 calls")
    outcome.check(max(lateness) <= 0.05, f"an answer was {max(lateness) * 1000:.0f} ms late")
    outcome.figures = {
        "faults": faults,
        "degraded": degraded,
        "mb_per_10_000": round(slope, 3),
        "rss_mb": memory[-1][1],
        "late_ms_max": round(max(lateness) * 1000, 1),
    }


def rss_mb() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 2)
