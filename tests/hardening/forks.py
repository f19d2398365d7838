"""A process that used a store, the engine or a provider, and then forks: the child works too."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from resift.errors import ResiftError
from tests.hardening.report import Outcome

CHILD_S = 30.0
REFUSED = 3
"""The exit code of a child to which the store said no, with one of our errors."""


def attack(seed: int, count: int) -> Outcome:
    """Fork `count` times over every store of the contract suite, and over the local reranker."""
    from tests.stores.factories import STORES

    outcome = Outcome("forks of a process that used a store or the engine")
    warnings.simplefilter("ignore", DeprecationWarning)
    with tempfile.TemporaryDirectory() as folder:
        for name, (_, factory) in STORES.items():
            place = Path(folder) / name
            place.mkdir()
            with contextlib.suppress(_Absent):
                asyncio.run(_store(outcome, name, factory, place, count))
    _engine(outcome, count)
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
