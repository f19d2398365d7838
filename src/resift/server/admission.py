"""Admission control: count pairs, queue short bursts, and reject requests at once under overload."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from resift.deadline import Clock, Deadline
from resift.server.schema import RequestFailed
from resift.server.server_options import Limits

CHARS_PER_WINDOW = 2_000  # estimated characters in one window of a model, so that long documents count for more
MAX_WINDOWS, MAX_QUERY_PARTS = 32, 8  # scored windows per document, and query parts that each is scored with
OVERLOAD_AFTER_S = 0.25  # with a queue that is never empty for this long, requests are rejected at once
MAX_LOCAL_WAIT_S = 0.025  # maximum wait for a local model, which keeps the time to a rejection below 50 ms
MIN_BACKLOG_S = 0.07  # queued local work that never causes a rejection, so bursts of small requests are admitted


def count_windows(texts: Sequence[str], limits: Limits) -> int:
    """Estimate the number of windows that an embedding model processes for these texts. Reject too many."""
    windows = sum(1 + len(text) // CHARS_PER_WINDOW for text in texts)
    if windows > limits.max_windows:
        raise RequestFailed("too_large", f"The texts have about {windows} windows; the limit is {limits.max_windows}")
    return windows


def count_pairs(texts: Sequence[str], query: str = "") -> int:
    """Estimate the number of pairs that a reranker scores for these documents."""
    windows = len(texts)
    if max(map(len, texts), default=0) >= CHARS_PER_WINDOW:
        windows = sum(min(MAX_WINDOWS, 1 + len(text) // CHARS_PER_WINDOW) for text in texts)
    return windows if len(query) <= CHARS_PER_WINDOW else windows * MAX_QUERY_PARTS


@dataclass(slots=True, eq=False)
class _Waiter:
    pairs: int
    admitted: asyncio.Future[bool]


@dataclass(slots=True)
class Admission:
    """Counts the pairs in progress and the waiting pairs, and measures the throughput.

    The engine runs the shortest work first, so a request waits for at most as many pairs of each other request as
    it has itself. The limit applies to this number: ten documents are admitted while thousands are in progress, but
    a second batch of thousands has to wait. With a local model (`cpu_bound`), a request is admitted if the work
    ahead of it takes no longer than its own. All methods run on one event loop.
    """

    limits: Limits
    clock: Clock = time.monotonic
    on_refusal: Callable[[], None] = lambda: None
    requests: int = 0
    bytes_held: int = 0
    pairs_per_s: float = 0.0
    overloaded: bool = False
    cpu_bound: bool = False
    _sizes: list[int] = field(default_factory=list)
    _queue: deque[_Waiter] = field(default_factory=deque)
    _queue_since_s: float = 0.0
    _window_start_s: float = 0.0
    _window_pairs: int = 0
    _mean_pairs: float = 1.0
    _mean_bytes_per_pair: float = 1.0

    @property
    def in_flight(self) -> int:
        """Pairs in progress."""
        return sum(self._sizes)

    @property
    def waiting(self) -> int:
        """Pairs waiting for admission."""
        return sum(waiter.pairs for waiter in self._queue)

    def check(self, body_bytes: int | None) -> None:
        """Reject a request before its body is read if it would be rejected afterwards anyway."""
        if self.requests >= self.limits.max_requests:
            raise self._refusal()
        if self.overloaded:
            # The body has not been read, so its pairs are estimated from previous bodies.
            pairs = self._mean_pairs if body_bytes is None else body_bytes / self._mean_bytes_per_pair
            if not self._fits(round(pairs)):
                raise self._refusal()

    def hold_bytes(self, size: int) -> None:
        """Count a received chunk of a body. Reject it if all bodies together take too much memory."""
        self.bytes_held += size
        if self.bytes_held > self.limits.max_bytes_held:
            raise self._refusal()

    @asynccontextmanager
    async def admit(
        self, pairs: int, *, deadline: Deadline | None = None, body_bytes: int | None = None
    ) -> AsyncIterator[None]:
        """Admit the pairs at once or before the deadline, or raise RequestFailed."""
        # The means change slowly, so one unusual request does not distort the next estimate.
        self._mean_pairs += (pairs - self._mean_pairs) * 0.05
        if body_bytes and pairs:
            self._mean_bytes_per_pair += (body_bytes / pairs - self._mean_bytes_per_pair) * 0.05
        # A request may overtake larger waiting requests, but not smaller ones.
        if self._fits(pairs) and not any(waiter.pairs <= pairs for waiter in self._queue):
            self._enter(pairs)
        else:
            left_s = deadline.timeout_s if deadline else None
            limit_s = min(self.limits.max_wait_s, MAX_LOCAL_WAIT_S if self.cpu_bound else math.inf)
            await self._wait(pairs, limit_s if left_s is None else min(limit_s, left_s))
        try:
            yield
        finally:
            self._leave(pairs)

    def _pairs_ahead(self, pairs: int) -> int:
        return sum(min(pairs, size) for size in self._sizes)

    def _fits(self, pairs: int) -> bool:
        if not self._sizes:
            return True
        # Even the largest request counts as half of the limit, so it need not wait until no other is in progress.
        capped_pairs = min(pairs, self.limits.max_pairs // 2)
        pairs_ahead = self._pairs_ahead(capped_pairs)
        if not self.pairs_per_s:
            # The throughput is unknown until the first work is done. Until then, only the count decides.
            starts_soon = not self.cpu_bound or len(self._sizes) < 2
        else:
            max_s = self.limits.max_backlog_s
            if self.cpu_bound:
                max_s = min(max_s, max(MIN_BACKLOG_S, pairs / self.pairs_per_s))
            starts_soon = pairs_ahead / self.pairs_per_s <= max_s
        return starts_soon and pairs_ahead + capped_pairs <= self.limits.max_pairs

    def _enter(self, pairs: int) -> None:
        if not self._sizes:
            self._window_start_s, self._window_pairs = self.clock(), 0
        self._sizes.append(pairs)

    def _leave(self, pairs: int) -> None:
        self._window_pairs += pairs
        elapsed_s = self.clock() - self._window_start_s
        # A rate over less than half a second is noisy, but as a first estimate it is better than none.
        if elapsed_s >= 0.5 or (not self.pairs_per_s and elapsed_s > 0):
            rate, estimate = self._window_pairs / elapsed_s, self.pairs_per_s
            self.pairs_per_s = estimate + (rate - estimate) * 0.3 if estimate else rate
            self._window_start_s, self._window_pairs = self.clock(), 0
        self._sizes.remove(pairs)
        # Use half of the limit. At the full limit, the state would flip with each request.
        if self.overloaded and self._pairs_ahead(round(self._mean_pairs)) <= self.limits.max_pairs / 2:
            self.overloaded = False
        for waiter in [waiter for waiter in self._queue if not waiter.admitted.done()]:
            if self._fits(waiter.pairs):
                self._queue.remove(waiter)
                # Count it before its task runs, so no other request takes its place.
                self._enter(waiter.pairs)
                waiter.admitted.set_result(True)

    async def _wait(self, pairs: int, wait_s: float) -> None:
        if not self._queue:
            self._queue_since_s = self.clock()
        elif self.clock() - self._queue_since_s > OVERLOAD_AFTER_S:
            # A queue that never empties is not a burst, and waiting would only delay every response.
            self.overloaded = True
            for waiter in self._queue:
                if not waiter.admitted.done():
                    waiter.admitted.set_result(False)
            self._queue.clear()
        if self.overloaded:
            raise self._refusal()
        waiter = _Waiter(pairs, asyncio.get_running_loop().create_future())
        self._queue.append(waiter)
        try:
            async with asyncio.timeout(wait_s):
                # `_leave` sets the result of this future, so a timeout must not cancel it.
                admitted = await asyncio.shield(waiter.admitted)
        except (TimeoutError, asyncio.CancelledError) as exc:
            if waiter in self._queue:
                self._queue.remove(waiter)
                waiter.admitted.cancel()
            elif waiter.admitted.result():
                self._leave(pairs)  # it was admitted just as the wait ended
            if isinstance(exc, TimeoutError):
                raise self._refusal() from None
            raise
        if not admitted:
            raise self._refusal()

    def _refusal(self) -> RequestFailed:
        self.on_refusal()
        backlog_s = (self.in_flight + self.waiting) / self.pairs_per_s if self.pairs_per_s else 0.0
        # The header requires integer seconds. Clients do not wait for more than a minute.
        retry_s = max(1, min(60, math.ceil(backlog_s)))
        return RequestFailed("overloaded", f"Too many requests; retry in {retry_s} s", retry_after_s=retry_s)
