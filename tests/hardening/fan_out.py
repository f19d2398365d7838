"""Stores that answer, fail, hang, lie or refuse to stop, in every order of events."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

from resift.errors import RetrievalError
from resift.pipeline import RetrievalNode
from resift.types import Hit
from tests.hardening.report import Outcome

AT_ONCE = 64
"""Schedules side by side: most of them wait for a store that hangs."""

TIMEOUT_S = 0.25
KINDS = ("answers", "answers", "answers", "raises", "hangs", "swallows", "lies", "empty")


class Unsteady:
    """A store that does one thing after a number of turns of the event loop."""

    def __init__(self, name: str, kind: str, turns: int, ids: list[str]) -> None:
        self.name, self.kind, self.turns, self.ids = name, kind, turns, ids

    async def search(self, query: str, *, k: int, where: Any = None) -> Any:
        for _ in range(self.turns):
            await asyncio.sleep(0)
        if self.kind == "raises":
            raise ValueError(f"secret of {self.name}")
        if self.kind == "hangs":
            await asyncio.Event().wait()
        if self.kind == "swallows":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return []
        if self.kind == "lies":
            return random.Random(self.turns).choice([None, 7, [object()], [{"text": "no id"}, 3], "text"])
        return [] if self.kind == "empty" else [Hit(id, f"text of {id}", 1.0) for id in self.ids[:k]]


def attack(seed: int, count: int) -> Outcome:
    """Run `count` schedules, each with other stores, orders of events and failures."""
    outcome = Outcome("schedules of stores that respond, fail, hang, return wrong data or refuse to stop")
    logging.disable(logging.CRITICAL)
    draw = random.Random(seed)
    loop = asyncio.new_event_loop()
    try:
        for start in range(0, count, AT_ONCE):
            loop.run_until_complete(_several(outcome, draw, min(AT_ONCE, count - start)))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        logging.disable(logging.NOTSET)
    return outcome


async def _several(outcome: Outcome, draw: random.Random, count: int) -> None:
    outcome.tried += count
    await asyncio.gather(*(_one(outcome, random.Random(draw.random())) for _ in range(count)))


async def _one(outcome: Outcome, draw: random.Random) -> None:
    names = [f"s{number}" for number in range(draw.randint(1, 5))]
    plan = [(name, draw.choice(KINDS), [f"d{draw.randrange(12)}" for _ in range(5)]) for name in names]
    pace = {name: draw.randrange(6) for name in names}
    first = await _retrieved(plan, pace)
    again = await _retrieved(plan, {name: draw.randrange(6) for name in names})
    shown = f"{plan} at {pace}: {first!r} and {again!r}"
    outcome.check(first[0] == again[0], f"another pace, another answer: {shown}")
    good = {name for name, kind, _ in plan if kind in ("answers", "empty")}
    sure_to_fail = {name for name, kind, _ in plan if kind in ("raises", "hangs")}
    ids, failures = first
    if failures is not None:
        outcome.check(sure_to_fail <= set(failures), f"a failure was passed over: {shown}")
        outcome.check(not good & set(failures), f"a good store was blamed: {shown}")
        outcome.check("secret" not in str(failures), f"an exception's text got out: {shown}")
        known = {id for _, kind, ids_ in plan if kind == "answers" for id in ids_}
        outcome.check(known == set(ids), f"lost or invented: {shown}")
    else:
        outcome.check(not good, f"all failed although one was good: {shown}")


async def _retrieved(plan: list[Any], pace: dict[str, int]) -> tuple[list[str], dict[str, str] | None]:
    stores = [Unsteady(name, kind, pace[name], ids) for name, kind, ids in plan]
    node = RetrievalNode(stores, k=50, timeout_s=TIMEOUT_S)
    try:
        ranking = (await node.execute({"query": "q"}))["retrieved"]
    except RetrievalError:
        return [], None
    return list(ranking.ids), dict(ranking.failures)
