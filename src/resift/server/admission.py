"""Who may come in: pairs are counted, bursts may wait a moment, overload is refused at once."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from resift.deadline import Clock
from resift.server.failures import RequestFailed
from resift.server.options import Limits
from resift.server.request_info import RequestInfo

CHARS_PER_WINDOW = 2_000
"""Characters that fit into one row of a model. A guess: long documents count for more than short ones."""

MOST_WINDOWS, MOST_PARTS = 32, 8
"""Windows of one document that are ever scored, and parts of a long query that each is scored with."""

STANDING_S = 0.25
"""How long somebody may be waiting before a burst is called overload: then nobody waits any more."""


def pairs_in(texts: Sequence[str], query: str = "") -> int:
    """Return about how many rows a model will read for these documents."""
    windows = sum(min(MOST_WINDOWS, 1 + len(text) // CHARS_PER_WINDOW) for text in texts)
    return windows if len(query) <= CHARS_PER_WINDOW else windows * MOST_PARTS


@dataclass(slots=True, eq=False)
class _Waiting:
    pairs: int
    turn: asyncio.Future[bool]


@dataclass(slots=True)
class Admission:
    """Counts the pairs that are being worked on and those that wait, and measures how quickly they go.

    The engine takes the shortest work first, so what a request has to wait for is at most as many pairs of
    each other request as it has itself. That is what is bounded: ten documents get in beside thousands, and a
    second thousand waits. A request of any size gets in when it is alone. All methods run on one event loop.
    """

    limits: Limits
    clock: Clock = time.monotonic
    on_refusal: Callable[[], None] = lambda: None
    requests: int = 0
    bytes_held: int = 0
    per_s: float = 0.0
    overloaded: bool = False
    _sizes: list[int] = field(default_factory=list)
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _standing_since_s: float = 0.0
    _window_start_s: float = 0.0
    _window_pairs: int = 0
    _usual_pairs: float = 1.0
    _usual_bytes: float = 1.0

    @property
    def in_flight(self) -> int:
        """Pairs that are being worked on."""
        return sum(self._sizes)

    @property
    def waiting(self) -> int:
        """Pairs that wait to be let in."""
        return sum(one.pairs for one in self._waiting)

    @property
    def backlog_s(self) -> float:
        """How long the work that is already here will take, as far as is known."""
        return (self.in_flight + self.waiting) / self.per_s if self.per_s else 0.0

    def check(self, info: RequestInfo) -> None:
        """Refuse a request before its body is read, when it would be refused afterwards anyway."""
        full = self.requests >= self.limits.max_requests
        if full or (self.overloaded and not self._fits(self._guess(info.body_bytes))):
            raise self._refusal()

    @contextmanager
    def reading(self, info: RequestInfo) -> Iterator[Callable[[int], None]]:
        """Give a function to call with the size of each part of a body; together they are bounded.

        A client that sends slowly holds few bytes and takes no place; once all is read, it counts.
        """
        held = 0

        def received(size: int) -> None:
            nonlocal held
            held += size
            self.bytes_held += size
            # All bodies together: many clients may each send one that is within its own limit.
            if self.bytes_held > self.limits.max_bytes_held:
                raise self._refusal()

        try:
            yield received
        finally:
            self.bytes_held -= held
        self.requests += 1
        info.counted = True

    def answered(self, info: RequestInfo) -> None:
        """Forget a request that was counted."""
        self.requests -= info.counted
        info.counted = False

    @asynccontextmanager
    async def admitted(
        self, pairs: int, *, wait_s: float | None = None, body_bytes: int | None = None
    ) -> AsyncIterator[None]:
        """Let these pairs in, now or within the time that a caller may wait, or raise RequestFailed."""
        self._learn(pairs, body_bytes)
        # Nobody overtakes a smaller request that waits; past a larger one it may go.
        if self._fits(pairs) and not any(one.pairs <= pairs for one in self._waiting):
            self._enter(pairs)
        else:
            most = self.limits.max_wait_s
            await self._wait(pairs, most if wait_s is None else min(most, wait_s))
        try:
            yield
        finally:
            self._measure(pairs)
            self._leave(pairs)

    def _learn(self, pairs: int, body_bytes: int | None) -> None:
        # Slowly: one odd request must not change what is thought of the next.
        self._usual_pairs += (pairs - self._usual_pairs) * 0.05
        if body_bytes and pairs:
            self._usual_bytes += (body_bytes / pairs - self._usual_bytes) * 0.05

    def _guess(self, body_bytes: int | None) -> int:
        """Return how many pairs an unread body will have, going by those that were read."""
        return round(self._usual_pairs if body_bytes is None else body_bytes / self._usual_bytes)

    def _ahead(self, pairs: int) -> int:
        return sum(min(pairs, size) for size in self._sizes)

    def _fits(self, pairs: int) -> bool:
        if not self._sizes:
            return True
        # However large, a request counts for half of what fits: it must not have to wait until it is alone.
        counted = min(pairs, self.limits.max_pairs // 2)
        ahead = self._ahead(counted)
        # Known only after the first work is done; until then the count alone decides.
        soon = not self.per_s or ahead / self.per_s <= self.limits.max_backlog_s
        return soon and ahead + counted <= self.limits.max_pairs

    def _enter(self, pairs: int) -> None:
        if not self._sizes:
            self._window_start_s, self._window_pairs = self.clock(), 0
        self._sizes.append(pairs)

    def _leave(self, pairs: int) -> None:
        self._sizes.remove(pairs)
        # Half, and not all: at the very limit it would switch to and fro with each request.
        if self._ahead(round(self._usual_pairs)) <= self.limits.max_pairs / 2:
            self.overloaded = False
        for one in [one for one in self._waiting if not one.turn.done()]:
            if self._fits(one.pairs):
                self._waiting.remove(one)
                # Counted here and not when its task runs: nobody may slip in between.
                self._enter(one.pairs)
                one.turn.set_result(True)

    async def _wait(self, pairs: int, wait_s: float) -> None:
        if not self._waiting:
            self._standing_since_s = self.clock()
        # A queue that never empties is no burst: waiting would only make every answer late.
        elif self.clock() - self._standing_since_s > STANDING_S:
            self.overloaded = True
            self._refuse_all()
        if self.overloaded:
            raise self._refusal()
        mine = _Waiting(pairs, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        try:
            async with asyncio.timeout(wait_s):
                # Shielded: whoever leaves sets it, and a timeout must not undo that unseen.
                let_in = await asyncio.shield(mine.turn)
        except (TimeoutError, asyncio.CancelledError) as exc:
            if mine in self._waiting:
                self._waiting.remove(mine)
                mine.turn.cancel()
            elif mine.turn.result():
                self._leave(pairs)  # let in at the very moment of giving up
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
        # A rate over less than half a second is noise; a first guess is better than none.
        if elapsed_s >= 0.5 or (not self.per_s and elapsed_s > 0):
            rate = self._window_pairs / elapsed_s
            self.per_s = rate if not self.per_s else self.per_s + (rate - self.per_s) * 0.3
            self._window_start_s, self._window_pairs = self.clock(), 0

    def _refusal(self) -> RequestFailed:
        self.on_refusal()
        # Whole seconds, as the header has it; more than a minute would only lose the client.
        retry_s = max(1, min(60, math.ceil(self.backlog_s)))
        return RequestFailed(
            "overloaded", f"Too many requests; try again in {retry_s} s", retry_after_s=retry_s
        )
