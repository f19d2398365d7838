"""Child processes of a process that used a store or the engine, by fork and by spawn: the child works too."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import tempfile
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from resift.errors import ResiftError
from tests.hardening.report import Outcome

CHILD_S = 30.0
REFUSED = 3
"""The exit code of a child to which the store said no, with one of our errors."""


def attack(seed: int, count: int) -> Outcome:
    """Fork `count` times over every store and the local reranker, at rest and at work; then start pools."""
    from tests.stores.factories import STORES

    outcome = Outcome("child processes of a process that used a store or the engine, by fork and by spawn")
    warnings.simplefilter("ignore", DeprecationWarning)
    with tempfile.TemporaryDirectory() as folder:
        for name, (_, factory) in STORES.items():
            place = Path(folder) / name
            place.mkdir()
            with contextlib.suppress(_Absent):
                asyncio.run(_store(outcome, name, factory, place, count))
        _engine(outcome, count)
        if not outcome.absent:
            _index(outcome, Path(folder), count)
    return outcome


class _Absent(Exception):
    """An engine that is not installed here."""


async def _store(outcome: Outcome, name: str, factory: Any, folder: Path, count: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(factory(folder))
        except BaseException as exc:  # pytest.skip is not an Exception
            raise _Absent from exc
        await store.add([{"id": f"d{at}", "text": f"alpha beta {at}"} for at in range(5)])
        expected = [hit.id for hit in await store.search("alpha", k=3)]
        for _ in range(count):
            outcome.tried += 1
            ended = in_child(lambda: [hit.id for hit in asyncio.run(store.search("alpha", k=3))] == expected)
            # An engine that cannot live in a forked child may say so in words; it may not hang or crash.
            if ended == REFUSED:
                outcome.figures["refused in words"] = outcome.figures.get("refused in words", 0) + 1
            outcome.check(ended in (0, REFUSED), f"{name}: the child ended with {ended}")
        again = [hit.id for hit in await store.search("alpha", k=3)]
        outcome.check(again == expected, f"{name}: the parent answers otherwise after the fork")


def _engine(outcome: Outcome, count: int) -> None:
    import resift

    first = resift.rerank("alpha", ["alpha beta", "gamma"])
    if first.degraded:
        outcome.absent = "no local model: the engine was not forked"
        return
    for _ in range(count):
        outcome.tried += 1
        ended = in_child(lambda: resift.rerank("alpha", ["alpha beta", "gamma"]).ids == first.ids)
        outcome.check(ended == 0, f"the engine: the child ended with {ended}")


def _index(outcome: Outcome, folder: Path, count: int) -> None:
    """Fork while four threads search and rerank, then search in process pools of each start method."""
    import resift

    path = folder / "docs.db"
    with resift.Index(path) as index:
        index.add(f"{i} alpha beta {'gamma' if i % 3 else 'delta'}" for i in range(60))
        expected = search_index(index, "alpha delta 7")
        done = threading.Event()

        def keep_busy() -> None:
            while not done.is_set():
                index.search("alpha delta 7")
                resift.rerank("alpha", ["alpha beta", "gamma"])

        threads = [threading.Thread(target=keep_busy) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(2 * count):
                outcome.tried += 1
                ended = in_child(lambda: search_index(index, "alpha delta 7") == expected)
                outcome.check(ended == 0, f"a fork of a busy process: the child ended with {ended}")
        finally:
            done.set()
            for thread in threads:
                thread.join()
        for method in ("fork", "spawn", "forkserver"):
            with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
                outcome.tried += 4
                for ids in pool.map(partial(search_path, str(path)), ["alpha delta 7"] * 4, timeout=120):
                    outcome.check(ids == expected, f"{method}: {ids} instead of {expected}")


def search_path(path: str, query: str) -> list[str]:
    """Search an index file that this process opens."""
    import resift

    with resift.Index(path) as index:
        return search_index(index, query)


def search_index(index: Any, query: str) -> list[str]:
    """Return the ids of the hits, reranked by the model; raise if the search is degraded."""
    ranking = index.search(query)
    assert not ranking.degraded, ranking.reason
    ids: list[str] = ranking.ids
    return ids


def in_child(check: Any) -> int:
    """Run the check in a forked child; return its exit code, 0 when it returned True, -9 when it hung."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if check() else 1)
        except ResiftError:
            os._exit(REFUSED)
        except BaseException:
            os._exit(2)
    until = time.monotonic() + CHILD_S
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -9
