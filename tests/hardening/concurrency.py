"""Every store and every scorer in 16 threads and in 16 tasks of one event loop, under deadlines of 1 to 50 ms."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import tempfile
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hardening.overload import late_wakeups, make_texts, percentile
from tests.hardening.report import Outcome

CALLERS = 16
DEADLINES_S = (0.001, 0.005, 0.02, 0.05)
P99_MS = 50.0
MIN_CALLS = 300
HANG_S = 60.0
QUERIES = ("travel harbor lamp", "food for the winter", "quantum state")

Search = Callable[[str, float | None], Awaitable[Any]]


def attack(seed: int, count: int) -> Outcome:
    """Search every store that can be had here `count` times, half from threads and half from one event loop."""
    outcome = Outcome("searches of every store by 16 threads and tasks under deadlines of 1 to 50 ms")
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        late_ms = _attack_all(outcome, _stores(Path(folder), random.Random(seed)), seed, count)
    _judge(outcome, late_ms)
    return outcome


def attack_scorers(seed: int, count: int) -> Outcome:
    """Rerank with every scorer that can be had here `count` times, half from threads and half from one loop."""
    outcome = Outcome("reranks with every scorer by 16 threads and tasks under deadlines of 1 to 50 ms")
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        late_ms = _attack_all(outcome, _scorers(Path(folder), random.Random(seed)), seed, count)
    _judge(outcome, late_ms)
    return outcome


def _attack_all(
    outcome: Outcome, systems: Iterator[tuple[str, Search]], seed: int, count: int
) -> dict[str, list[float]]:
    late_ms: dict[str, list[float]] = {}
    with late_wakeups() as machine_ms:
        for name, search in systems:
            late_ms[name] = _attack_system(outcome, name, search, seed, count)
    late_ms["the machine"] = sorted(machine_ms)
    return late_ms


def _attack_system(outcome: Outcome, name: str, search: Search, seed: int, count: int) -> list[float]:
    """Compare complete rankings with those of a caller without company; return how late each call was."""
    expected = {query: asyncio.run(search(query, None)).ids for query in QUERIES}
    late_ms: list[float] = []

    async def call(draw: random.Random) -> None:
        query, deadline_s = draw.choice(QUERIES), draw.choice(DEADLINES_S)
        started = time.perf_counter()
        try:
            ranking = await search(query, deadline_s)
        except Exception as exc:
            outcome.fail(f"{name}: {type(exc).__name__}: {exc}")
            return
        late_ms.append((time.perf_counter() - started - deadline_s) * 1000)
        if ranking.degraded:
            outcome.check(bool(ranking.reason), f"{name}: degraded without a reason")
        else:
            outcome.check(ranking.ids == expected[query], f"{name}: {ranking.ids} instead of {expected[query]}")

    async def calls(number: int, times: int) -> None:
        draw = random.Random(f"{seed} {name} {number}")
        for _ in range(times):
            await call(draw)

    async def tasks(times: int) -> None:
        await asyncio.wait_for(asyncio.gather(*(calls(number, times) for number in range(CALLERS))), HANG_S)

    each = max(1, count // (2 * CALLERS))
    threads = [
        threading.Thread(target=lambda number=number: asyncio.run(calls(-1 - number, each)), daemon=True)
        for number in range(CALLERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    outcome.check(not any(thread.is_alive() for thread in threads), f"{name}: a thread hangs")
    try:
        asyncio.run(tasks(each))
    except TimeoutError:
        outcome.fail(f"{name}: a task hangs")
    outcome.tried += 2 * CALLERS * each
    after = asyncio.run(search(QUERIES[0], None)).ids
    outcome.check(after == expected[QUERIES[0]], f"{name}: other results after the attack")
    return late_ms


def _judge(outcome: Outcome, late_ms: dict[str, list[float]]) -> None:
    machine = percentile(late_ms.pop("the machine"), 0.99)
    every = sorted(late for values in late_ms.values() for late in values)
    slowest = max(late_ms, key=lambda name: percentile(sorted(late_ms[name]), 0.99))
    outcome.figures = {
        "systems": len(late_ms),
        "late_ms_p99": round(percentile(every, 0.99), 1),
        "late_ms_max": round(every[-1], 1),
        "slowest": f"{slowest} ({percentile(sorted(late_ms[slowest]), 0.99):.0f} ms)",
        "machine_ms_p99": round(machine, 1),
    }
    p99 = percentile(every, 0.99 if len(every) >= MIN_CALLS else 0.5)
    # Two threads wake up one after the other: what the machine itself is late by counts twice.
    outcome.check(p99 <= P99_MS + 2 * machine, f"{p99:.0f} ms over the deadline")


def _stores(folder: Path, draw: random.Random) -> Iterator[tuple[str, Search]]:
    """Yield the stores of the contract suite, the tables of other programs, a graph, and an index file."""
    from tests.stores.factories import STORES
    from tests.stores.table_systems import FIELDS, SYSTEMS

    topics = ("travel", "food")
    documents = [{"id": f"d{i}", "text": f"{topics[i % 2]} {text}"} for i, text in enumerate(make_texts(draw, 200, 40))]
    for name, (_, factory) in STORES.items():
        with contextlib.suppress(pytest.skip.Exception), _opened(factory, folder, name) as store:
            asyncio.run(store.add(documents))
            yield name, _pipeline(store)
    for name, opened in SYSTEMS.items():
        place = folder / f"table {name}"
        place.mkdir()
        with contextlib.suppress(pytest.skip.Exception), opened(place) as table:
            store = table.make(fields=FIELDS)
            yield f"table of {name}", _pipeline(store)
            asyncio.run(store.close())
    import resift

    with resift.Index(folder / "index.db") as index:
        index.add(documents)

        async def search(query: str, deadline_s: float | None) -> Any:
            return await asyncio.to_thread(index.search, query, k=5, deadline_s=deadline_s)

        yield "resift.Index", search


@contextlib.contextmanager
def _opened(factory: Any, folder: Path, name: str) -> Iterator[Any]:
    """Open a store on the event loop of another thread, which stays open while the store is used."""
    place = folder / name
    place.mkdir()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    context = factory(place)

    def run(awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, loop).result(120)

    store = run(context.__aenter__())
    try:
        yield store
    finally:
        run(context.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def _pipeline(store: Any) -> Search:
    from resift.pipeline.pipeline import Pipeline

    pipeline = Pipeline([store], rerank=None, k=5)
    return lambda query, deadline_s: pipeline.search(query, deadline_s=deadline_s)


def _scorers(folder: Path, draw: random.Random) -> Iterator[tuple[str, Search]]:
    """Yield the local scorers, every hosted API over a loopback server, and what wraps another scorer."""
    from resift.rerankers import (
        CachedScorer,
        CascadeReranker,
        CrossEncoderReranker,
        HostedReranker,
        LateInteractionReranker,
        LLMReranker,
        MemoryScores,
        SemanticBM25Reranker,
        SQLiteScores,
    )
    from resift.rerankers.hosted import PROVIDERS
    from resift.resilience import Tiered
    from resift.testing import OverlapScorer
    from tests.providers import ProviderServer

    texts = make_texts(draw, 20, 60)
    cross_encoder = CrossEncoderReranker()
    with ProviderServer() as server:
        scorers: dict[str, Any] = {
            "cross-encoder": cross_encoder,
            "late-interaction": LateInteractionReranker(),
            "semantic-bm25": SemanticBM25Reranker(),
            "cascade": CascadeReranker(cross_encoder, cheap=SemanticBM25Reranker(), k=5),
            "memory cache": CachedScorer(OverlapScorer(), MemoryScores(), model="overlap"),
            "SQLite cache": CachedScorer(OverlapScorer(), SQLiteScores(folder / "scores.db"), model="overlap"),
            "llm": LLMReranker(server.base_url("chat"), "m", allow_loopback=True),
        }
        for name in PROVIDERS:
            options: dict[str, Any] = {"api_key": "k", "allow_loopback": True}
            scorers[name] = HostedReranker(name, base_url=server.base_url(name), **options)
        scorers["tiers"] = Tiered(scorers["jina"], SemanticBM25Reranker())
        for name, scorer in scorers.items():
            yield name, _reranks(scorer, texts)


def _reranks(scorer: Any, texts: list[str]) -> Search:
    import resift

    async def search(query: str, deadline_s: float | None) -> Any:
        ranking = await resift.arerank(query, texts, scorer=scorer, deadline_s=deadline_s)
        assert len(ranking) == len(texts), "a candidate was lost"
        return ranking

    return search
