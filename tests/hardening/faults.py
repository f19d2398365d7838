"""Every fault of a provider in every dialect: the answer comes in time, whole, and says what happened."""

from __future__ import annotations

import asyncio
import logging
import time

from resift.deadline import Deadline
from resift.rerankers.hosted import PROVIDERS, HostedReranker
from resift.rerankers.rescore import rescore
from resift.rerankers.semantic_bm25 import SemanticBM25Reranker
from resift.resilience import CircuitBreaker, Tiered
from resift.types import Hit
from tests.hardening.report import Outcome
from tests.providers import FAULTS, ProviderServer

SLOW = ("stall", "stall-midway", "drip")
HITS = [Hit(f"h{at}", f"text{at} {'wanted' if at % 2 else 'other'} words") for at in range(5)]


def attack(seed: int, count: int) -> Outcome:
    """Meet each fault `count` times in each dialect, dialects side by side."""
    outcome = Outcome("faults of a provider, each in each dialect")
    lateness: list[float] = []
    logging.disable(logging.CRITICAL)
    try:
        for fault in sorted(FAULTS):
            asyncio.run(_all_dialects(outcome, fault, count, lateness))
    finally:
        logging.disable(logging.NOTSET)
    lateness.sort()
    outcome.figures = {
        "faults": len(FAULTS),
        "dialects": len(PROVIDERS),
        "late_ms_p99": round(1000 * lateness[int(0.99 * (len(lateness) - 1))], 1),
        "late_ms_max": round(1000 * lateness[-1], 1),
    }
    return outcome


async def _all_dialects(outcome: Outcome, fault: str, times: int, lateness: list[float]) -> None:
    async with asyncio.TaskGroup() as group:
        for provider in PROVIDERS:
            group.create_task(_one(outcome, provider, fault, times, lateness))


async def _one(outcome: Outcome, provider: str, fault: str, times: int, lateness: list[float]) -> None:
    seconds = 0.4 if fault in SLOW else 10.0
    with ProviderServer() as server:
        primary = HostedReranker(
            provider, base_url=server.base_url(provider), api_key="k", allow_loopback=True, timeout_s=5
        )
        server.misbehave(fault, at=80)
        for _ in range(times):
            # A breaker of its own each time: the fault is met, not the open breaker.
            tiers = Tiered(primary, SemanticBM25Reranker(), breaker=CircuitBreaker())
            outcome.tried += 1
            started = time.perf_counter()
            try:
                ranking = await rescore(tiers, "wanted words", HITS, k=5, deadline=Deadline.after(seconds))
            except Exception as exc:
                outcome.fail(f"{fault}/{provider} raised {type(exc).__name__}: {exc}")
                continue
            lateness.append(time.perf_counter() - started - seconds)
            whole = sorted(ranking.ids) == sorted(hit.id for hit in HITS)
            outcome.check(whole and not ranking.unscored, f"{fault}/{provider} lost a candidate")
            outcome.check(ranking.degraded and bool(ranking.reason), f"{fault}/{provider} was passed over")
            outcome.check(ranking.tier == "semantic-bm25", f"{fault}/{provider}: tier {ranking.tier}")
