"""Limits of a TCP connection: time to send a request, size of its header, time to read the response.

uvicorn has no such limits. `LimitedConnection` sees the bytes between the socket and uvicorn's HTTP protocol. Through
`current_connection`, the app reports the start of a request, the end of its body and the end of the response.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from resift.server.endpoint import current_connection
from resift.server.server_options import Limits

_CLOSE = b"content-length: 0\r\nconnection: close\r\n\r\n"
_BUSY = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\n" + _CLOSE
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\n" + _CLOSE
_HEADER_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + _CLOSE
_HEADER_END = b"\r\n\r\n"
_MAX_CHUNK_BYTES = 256 << 10  # asyncio reads at most this many bytes at once

Phase = Literal["new", "idle", "header", "header complete", "body", "answering"]


class LimitedConnection(asyncio.Protocol):
    """One connection with the limits of the server. uvicorn creates an instance per connection."""

    limits: ClassVar[Limits]
    open: ClassVar[set[LimitedConnection]]
    make_another: ClassVar[Callable[[], LimitedConnection] | None]

    def __init__(self, *args: object, **options: object) -> None:
        # The drain code accepts connections itself and needs a protocol for each.
        type(self).make_another = functools.partial(type(self), *args, **options)
        make_http: Callable[..., asyncio.Protocol] = AutoHTTPProtocol
        self._http = make_http(*args, **options)
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._phase: Phase = "new"
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._bytes = 0
        self._tail = b""
        self._body_end_s = math.inf
        self._body_bytes: int | None = None
        self._answered = False
        self._pipelines = False

    @classmethod
    def with_limits(cls, limits: Limits) -> type[LimitedConnection]:
        """Return a class with these limits for uvicorn's `http` option."""
        return type(cls.__name__, (cls,), {"limits": limits, "open": set(), "make_another": None})

    @property
    def waits_for_first_request(self) -> bool:
        """Whether the connection has not delivered its first request yet."""
        return self._phase in ("new", "header", "header complete") and not self._answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection. If there are too many, refuse it before a byte is read."""
        self._transport = transport
        if len(self.open) >= self.limits.max_connections:
            self._refuse(_BUSY)
            return
        self.open.add(self)
        self._http.connection_made(transport)
        self._start_timer(self.limits.first_byte_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._stop_timer()
        if self._write_timer is not None:
            self._write_timer.cancel()
        if self in self.open:
            self.open.discard(self)
            self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Forward data to the HTTP protocol unless it exceeds a limit."""
        if self not in self.open or self._transport.is_closing():
            return
        if self._phase in ("new", "idle"):
            # The timer starts once per request, at its first byte. A header sent byte by byte gets no extra time.
            self._expect_header()
        self._bytes += len(data)
        if self._phase == "header":
            if self._count_header(data) > self.limits.max_header_bytes:
                self._refuse(_HEADER_TOO_LARGE)
                return
        elif self._phase == "body":
            self._tail = (self._tail + data[-4:])[-4:]
            # The app limits the body itself. The margin is for chunk sizes and trailers.
            if self._bytes > self.limits.max_body_bytes * 1.25 + 2 * _MAX_CHUNK_BYTES:
                self._transport.abort()
                return
            if not (self._answered and self._skip_body()):
                self._start_timer(min(self.limits.stall_timeout_s, self._body_end_s - self._loop.time()))
        elif self._phase == "answering" and self._bytes > self.limits.max_header_bytes + _MAX_CHUNK_BYTES:
            # The header of a pipelined request does not end. uvicorn stops reading after a complete header.
            self._transport.abort()
            return
        # uvicorn starts the task of the app here, and the task inherits this context.
        current_connection.set(self)
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        """Forward the end of the client's data."""
        return self._http.eof_received() if self in self.open else None

    def pause_writing(self) -> None:
        """Start the timer for a client that does not read its response."""
        self._write_timer = self._loop.call_later(self.limits.send_timeout_s, self._transport.abort)
        self._http.pause_writing()
        self._limit_unread_bytes()

    def _limit_unread_bytes(self) -> None:
        """Cut off the clients that have been reading their responses for longest if all responses exceed the limit."""
        waiting = sorted(
            (connection._write_timer.when(), id(connection), connection)
            for connection in self.open
            if connection._write_timer is not None and not connection._transport.is_closing()
        )
        unread = sum(connection._transport.get_write_buffer_size() for *_, connection in waiting)
        for *_, connection in waiting:
            if unread <= self.limits.max_bytes_held:
                return
            unread -= connection._transport.get_write_buffer_size()
            connection._transport.abort()

    def resume_writing(self) -> None:
        """Stop the timer for reading the response."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        self._http.resume_writing()

    def request_started(self, *, has_body: bool, body_bytes: int | None) -> None:
        """Start the timer for the body. The app calls this when the header is complete."""
        self._answered = False
        self._body_bytes = body_bytes
        self._phase = "body" if has_body else "answering"
        if has_body:
            self._body_end_s = self._loop.time() + self.limits.body_timeout_s
            self._start_timer(self.limits.stall_timeout_s)
        else:
            self._stop_timer()

    def body_received(self) -> None:
        """Stop the timer for the body. The app calls this when the body is complete."""
        self._stop_timer()
        self._phase = "answering"
        # Bytes after the body belong to the next request.
        if self._body_bytes is not None:
            self._bytes -= self._body_bytes
        else:
            self._bytes = 0 if self._tail.endswith(_HEADER_END) else 1  # the end of a chunked body

    def response_sent(self) -> None:
        """Wait for the next request. The app calls this after it has sent the response."""
        self._answered = True
        if self._phase == "body":
            # The request was rejected before its body was read. The client may keep sending it for a limited time.
            if not self._skip_body():
                self._start_timer(self._body_end_s - self._loop.time())
            return
        self._wait_for_request(extra_bytes=self._bytes if self._phase == "answering" else 0)

    def _skip_body(self) -> bool:
        """Return whether the unread body of an answered request is complete. If so, wait for the next request."""
        if self._body_bytes is None:
            if not self._tail.endswith(_HEADER_END):  # the end of a chunked body
                return False
            self._wait_for_request(extra_bytes=0)
        elif self._bytes < self._body_bytes:
            return False
        else:
            self._wait_for_request(extra_bytes=self._bytes - self._body_bytes)
        return True

    def _wait_for_request(self, *, extra_bytes: int) -> None:
        self._stop_timer()
        self._phase = "idle"
        self._pipelines |= extra_bytes > 0
        # A packet may contain several requests and half of another. After such a packet, the next request of
        # this connection must arrive soon.
        if self._pipelines:
            self._expect_header()

    def _expect_header(self) -> None:
        self._phase, self._bytes, self._tail = "header", 0, b""
        self._start_timer(self.limits.header_timeout_s)

    def _count_header(self, data: bytes) -> int:
        """Return the size of the header received so far. After its end, count the bytes that follow it."""
        text = self._tail + data
        end = text.find(_HEADER_END)
        if end < 0:
            self._tail = text[-3:]
            return self._bytes
        extra_bytes = len(text) - end - len(_HEADER_END)
        header = self._bytes - extra_bytes
        self._phase, self._bytes, self._tail = "header complete", extra_bytes, text[-4:]
        return header

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(max(0.0, seconds), self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if not self._transport.is_closing():
            self._refuse(b"" if self._answered and self._phase == "body" else _TOO_SLOW)

    def _refuse(self, response: bytes) -> None:
        self._stop_timer()
        if response:
            self._transport.write(response)
        self._transport.close()
