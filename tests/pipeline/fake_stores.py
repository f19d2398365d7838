"""Stores that do exactly what a test needs: answer, wait, hang, raise, count."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from resift.types import Hit, ScorerInfo


def hit(id: str, score: float = 1.0, text: str | None = None, **metadata: Any) -> Hit:
    return Hit(id, f"text of {id}" if text is None else text, score, "", metadata)


class Answers:
    """Gives the same ids to every question and remembers what it was asked."""

    def __init__(self, name: str, ids: Sequence[str] = (), *, before: Callable[[], Any] | None = None) -> None:
        self.name = name
        self.ids = list(ids)
        self.before = before
        self.asked: list[dict[str, Any]] = []

    async def search(self, query, *, k, where=None):
        self.asked.append({"query": query, "k": k, "where": where})
        if self.before is not None:
            await self.before()
        return [hit(id, 1.0 / rank) for rank, id in enumerate(self.ids, start=1)][:k]


class Raises:
    """Fails with what it is given."""

    def __init__(self, name: str, error: BaseException) -> None:
        self.name = name
        self.error = error

    async def search(self, query, *, k, where=None):
        raise self.error


class Hangs:
    """Never answers; says whether it was cancelled."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cancelled = False

    async def search(self, query, *, k, where=None):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


class IgnoresCancellation:
    """Goes on waiting although it was cancelled, until released."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.released = asyncio.Event()

    async def search(self, query, *, k, where=None):
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                continue
        return []


class HangsInThread:
    """Blocks a worker thread that nobody can stop, until released."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.released = threading.Event()

    async def search(self, query, *, k, where=None):
        await asyncio.to_thread(self.released.wait, 30)
        return []


class Graph:
    """A graph store: answers Cypher and remembers statement and parameters."""

    def __init__(self, name: str, ids: Sequence[str] = ()) -> None:
        self.name = name
        self.ids = list(ids)
        self.asked: list[tuple[str, dict[str, Any], int]] = []

    async def query(self, cypher, parameters=None, *, k):
        self.asked.append((cypher, dict(parameters or {}), k))
        return [hit(id) for id in self.ids][:k]


class Points:
    """A scorer: gives each id its points, None where it has none."""

    def __init__(
        self, points: dict[str, float | None], *, name: str = "points", requires: Any = (), score_scale: Any = "unknown"
    ) -> None:
        self.points = points
        self.name = name
        self.info = ScorerInfo(name=name, score_scale=score_scale)
        self.requires = requires
        self.asked: list[list[str]] = []

    async def score(self, query, hits, *, deadline):
        from resift.types import Scores

        self.asked.append([each.id for each in hits])
        return Scores([self.points.get(each.id) for each in hits], self.name)
