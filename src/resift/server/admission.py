"""Who may come in: pairs are counted, bursts may wait a moment, overload is refused at once."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from resift.deadline import Clock
from resift.server.failures import RequestFailed
from resift.server.options import Limits

CHARS_PER_WINDOW = 2_000
"""Characters that fit into one row of a model. A guess: long documents count for more than short ones."""

MOST_WINDOWS = 32
"""Windows of one document that are ever scored."""

STANDING_S = 0.25
"""How long somebody may be waiting before a burst is called overload: then nobody waits any more."""


def pairs_in(texts: Sequence[str]) -> int:
    """Return about how many rows a model will read for these documents."""
    return sum(min(MOST_WINDOWS, 1 + len(text) // CHARS_PER_WINDOW) for text in texts)


@dataclass(slots=True)
class _Waiting:
    pairs: int
    turn: asyncio.Future[bool]


@dataclass(slots=True)
class Admission:
    """Counts the pairs that are being worked on and those that wait, and measures how quickly they go.

    All methods run on one event loop. A request of any size gets in when it is alone.
    """

    limits: Limits
    clock: Clock = time.monotonic
    on_refusal: Callable[[], None] = lambda: None
    in_flight: int = 0
    requests: int = 0
    per_s: float = 0.0
    overloaded: bool = False
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _standing_since_s: float = 0.0
    _window_start_s: float = 0.0
    _window_pairs: int = 0
    _usual: float = 1.0

    @property
    def waiting(self) -> int:
        """Pairs that wait to be let in."""
        return sum(one.pairs for one in self._waiting)

    @property
    def backlog_s(self) -> float:
        """How long the work that is already here will take, as far as is known."""
        return (self.in_flight + self.waiting) / self.per_s if self.per_s else 0.0

    def check(self) -> None:
        """Refuse a request before its body is read, when it would be refused afterwards anyway."""
        if self.requests > self.limits.max_requests:
            raise self._refusal()
        if self.overloaded and not self._fits(round(self._usual)):
            raise self._refusal()

    @asynccontextmanager
    async def admitted(self, pairs: int, *, wait_s: float | None = None) -> AsyncIterator[None]:
        """Let these pairs in, now or within the time that a caller may wait, or raise RequestFailed."""
        self._usual += (pairs - self._usual) * 0.05
        if not self._waiting and self._fits(pairs):
            self._enter(pairs)
        else:
            most = self.limits.max_wait_s
            await self._wait(pairs, most if wait_s is None else min(most, wait_s))
        try:
            yield
        finally:
            self._measure(pairs)
            self._leave(pairs)

    def _fits(self, pairs: int) -> bool:
        if not self.in_flight:
            return True
        # Known only after the first work is done; until then the count alone decides.
        soon = not self.per_s or self.in_flight / self.per_s <= self.limits.max_backlog_s
        return soon and self.in_flight + pairs <= self.limits.max_pairs

    def _enter(self, pairs: int) -> None:
        if not self.in_flight:
            self._window_start_s, self._window_pairs = self.clock(), 0
        self.in_flight += pairs

    def _leave(self, pairs: int) -> None:
        self.in_flight -= pairs
        if self.in_flight <= self.limits.max_pairs / 2:
            self.overloaded = False
        while self._waiting and self._fits(self._waiting[0].pairs):
            one = self._waiting.popleft()
            if not one.turn.done():
                # Counted here and not when its task runs: nobody may slip in between.
                self._enter(one.pairs)
                one.turn.set_result(True)

    async def _wait(self, pairs: int, wait_s: float) -> None:
        if not self._waiting:
            self._standing_since_s = self.clock()
        elif self.clock() - self._standing_since_s > STANDING_S:
            self.overloaded = True
            self._refuse_all()
        if self.overloaded:
            raise self._refusal()
        mine = _Waiting(pairs, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        try:
            async with asyncio.timeout(wait_s):
                let_in = await asyncio.shield(mine.turn)
        except (TimeoutError, asyncio.CancelledError) as exc:
            if mine in self._waiting:
                self._waiting.remove(mine)
                mine.turn.cancel()
            elif mine.turn.result():
                self._leave(pairs)
            if isinstance(exc, TimeoutError):
                raise self._refusal() from None
            raise
        if not let_in:
            raise self._refusal()

    def _refuse_all(self) -> None:
        while self._waiting:
            one = self._waiting.popleft()
            if not one.turn.done():
                one.turn.set_result(False)

    def _measure(self, pairs: int) -> None:
        self._window_pairs += pairs
        elapsed_s = self.clock() - self._window_start_s
        if elapsed_s >= 0.5 or (not self.per_s and elapsed_s > 0):
            rate = self._window_pairs / elapsed_s
            self.per_s = rate if not self.per_s else self.per_s + (rate - self.per_s) * 0.3
            self._window_start_s, self._window_pairs = self.clock(), 0

    def _refusal(self) -> RequestFailed:
        self.on_refusal()
        retry_s = max(1, min(60, math.ceil(self.backlog_s)))
        return RequestFailed(
            "overloaded", f"Too many requests; try again in {retry_s} s", retry_after_s=retry_s
        )
