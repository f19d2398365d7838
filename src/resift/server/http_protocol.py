"""uvicorn's HTTP protocol with time limits: a client that sends slowly, or nothing, loses its connection."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from resift.server.options import Limits

if TYPE_CHECKING:
    _Base: Any = asyncio.Protocol
else:
    _Base = AutoHTTPProtocol

_BUSY = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def timed_protocol(limits: Limits) -> type[Any]:
    """Return a protocol class for uvicorn's `http` option that keeps these limits."""
    return type("LimitedProtocol", (_TimedProtocol,), {"limits": limits})


class _TimedProtocol(_Base):  # type: ignore[misc]
    """Headers must be complete in time, a body may not stall or take too long; connections are counted."""

    limits: Limits

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._silent = True
        self._body_end_s = math.inf

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # Before a byte is read: every open connection holds memory.
        if len(self.connections) > self.limits.max_connections:
            transport.write(_BUSY)
            transport.close()
            return
        self._arm(self.limits.first_byte_timeout_s)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        idle = self._timer is None and (before is None or before.response_complete)
        if self._silent or idle:
            # Once per request, at its first byte: a header that comes byte by byte gains no time.
            self._silent = False
            self._arm(self.limits.header_timeout_s)
        super().data_received(data)
        if self.cycle is None:
            return
        if not self.cycle.more_body:
            self._disarm()
            return
        now_s = self.loop.time()
        # A new request on a kept connection starts a new time for its body.
        if self.cycle is not before:
            self._body_end_s = now_s + self.limits.body_timeout_s
        self._arm(min(self.limits.stall_timeout_s, max(0.0, self._body_end_s - now_s)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        answered = self.cycle is not None and (self.cycle.response_started or self.cycle.response_complete)
        if answered and self.loop.time() < self._body_end_s:
            # Refused before its body was read; the client may come back on this connection.
            self._arm(self._body_end_s - self.loop.time())
            return
        if not answered:
            self.transport.write(_LATE)
        self.transport.close()
