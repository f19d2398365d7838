"""HTTP transport of the provider client: warm connections per event loop, concurrency limits, bounded bodies."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, NoReturn
from weakref import WeakKeyDictionary

from resift._internal.forking import ForkSafeLock, after_fork, leak
from resift.errors import require
from resift.rerankers.hosted.endpoints import Endpoint
from resift.types import JsonValue

if TYPE_CHECKING:
    import httpx

# --- Warm connections: one httpx client per event loop and provider, closed with its loop -------------------

Clients = dict[tuple[str, str], tuple["httpx.AsyncClient", AsyncGenerator[None, None]]]
"""The open clients of one event loop, by provider and origin."""


class _LoopClients:
    """The open clients of every event loop; a forked child starts without any."""

    def __init__(self) -> None:
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Clients] = WeakKeyDictionary()
        self._lock = ForkSafeLock()
        after_fork(self)

    def get(self, loop: asyncio.AbstractEventLoop) -> Clients:
        """Return the clients of a loop as a dict that callers may add to."""
        with self._lock:
            if loop not in self._clients:
                # The transports of an abruptly closed loop keep it alive, so drop them.
                for closed_loop in [other for other in self._clients if other.is_closed()]:
                    del self._clients[closed_loop]
            return self._clients.setdefault(loop, {})

    def pop(self, loop: asyncio.AbstractEventLoop) -> Clients:
        """Remove a loop and return its clients."""
        with self._lock:
            return self._clients.pop(loop, {})

    def reset_after_fork(self) -> None:
        """Discard the parent's connections without closing them, because sharing a TLS stream would break it."""
        leak(dict(self._clients))
        self._clients = WeakKeyDictionary()


_loop_clients = _LoopClients()


def preload(endpoint: Endpoint) -> None:
    """Import the modules of the first request in advance, because importing them takes longer than some deadlines."""
    require("httpx", extra="hosted")
    for module in ("httpcore", "h2.connection", "anyio._backends._asyncio"):
        with suppress(ImportError):
            import_module(module)
    _tls_context(plain=endpoint.base_url.startswith("http:"))


async def warm_client(endpoint: Endpoint) -> httpx.AsyncClient:
    """Return the running loop's httpx.AsyncClient for an endpoint, opening it on first use."""
    clients = _loop_clients.get(asyncio.get_running_loop())
    key = (endpoint.provider, endpoint.origin)
    if key not in clients:
        client = _open_client(endpoint)
        lifetime = _close_at_loop_end(client)
        # No other task runs between the check above and this line, because this anext never suspends.
        await anext(lifetime)
        clients[key] = (client, lifetime)
    return clients[key][0]


async def close_connections() -> None:
    """Close all warm connections of the running loop; the next call opens new ones."""
    for _, lifetime in _loop_clients.pop(asyncio.get_running_loop()).values():
        await lifetime.aclose()


async def _close_at_loop_end(client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
    # asyncio.run closes all open async generators before its loop, which closes the sockets.
    try:
        yield
    finally:
        await client.aclose()


def _open_client(endpoint: Endpoint) -> httpx.AsyncClient:
    library = require("httpx", extra="hosted")
    logging.getLogger("httpx").addFilter(_drop_reason)  # adding the same filter again has no effect
    client: httpx.AsyncClient = library.AsyncClient(
        # A redirect could send the key and the texts to another address.
        follow_redirects=False,
        # With TLS, the server chooses the version; many requests can then share one HTTP/2 connection.
        http2=find_spec("h2") is not None,
        timeout=None,  # the caller enforces a deadline for the whole exchange
        verify=_tls_context(plain=endpoint.base_url.startswith("http:")),
        trust_env=not endpoint.loopback,  # a proxy from the environment must not see loopback traffic
        # No cookies, because a provider's session must not link the requests of different callers.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        limits=library.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60.0),
    )
    return client


def _drop_reason(record: logging.LogRecord) -> bool:
    """Remove the reason phrase from httpx's log record of a response, because it may echo the key or the query."""
    if isinstance(record.args, tuple) and len(record.args) == 5:
        record.args = (*record.args[:4], "")
    return True


@cache
def _tls_context(*, plain: bool) -> ssl.SSLContext:
    # Loading certificates takes tens of milliseconds, so do it once per process and never for plain http.
    if plain:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context: ssl.SSLContext = require("httpx", extra="hosted").create_ssl_context()
    return context


# --- Concurrency: one limit per provider for the whole process ----------------------------------------------

POLL_S = 0.01  # polling interval of a waiting request. A release in one event loop cannot wake a task in another.


class ConcurrencyLimit:
    """A first-in, first-out semaphore for tasks in several event loops and threads of the process.

    A loop that is closed during a call never finishes its tasks, so their slots are reclaimed.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        # Tickets in order of arrival; the first `capacity` of them are in flight.
        self._tickets: dict[object, asyncio.AbstractEventLoop] = {}
        self._lock = ForkSafeLock()
        after_fork(self)

    @property
    def in_use(self) -> int:
        """Number of requests in flight."""
        with self._lock:
            return min(self.capacity, sum(not loop.is_closed() for loop in self._tickets.values()))

    def narrow(self, capacity: int) -> None:
        """Lower the limit; a higher value has no effect."""
        with self._lock:
            self.capacity = min(self.capacity, capacity)

    def reset_after_fork(self) -> None:
        """Start from zero in a forked child, where the parent's requests are not in flight."""
        self._tickets = {}

    @asynccontextmanager
    async def permit(self) -> AsyncIterator[None]:
        """Wait for a free slot and hold it until the block ends."""
        ticket = object()
        with self._lock:
            self._tickets[ticket] = asyncio.get_running_loop()
        try:
            while not self._is_admitted(ticket):  # noqa: ASYNC110 - an asyncio.Event belongs to one loop
                await asyncio.sleep(POLL_S)
            yield
        finally:
            with self._lock:
                self._tickets.pop(ticket, None)

    def _is_admitted(self, ticket: object) -> bool:
        with self._lock:
            first = list(islice(self._tickets.items(), self.capacity))
            for other, loop in first:
                if loop.is_closed():
                    del self._tickets[other]
            return any(other is ticket for other, _ in first)


_limits: dict[tuple[str, str], ConcurrencyLimit] = {}
_lock = ForkSafeLock()


def shared_limit(provider: str, origin: str, capacity: int) -> ConcurrencyLimit:
    """Return the limit of a provider; if instances request different limits, the lowest applies."""
    with _lock:
        limit = _limits.setdefault((provider, origin), ConcurrencyLimit(capacity))
    limit.narrow(capacity)
    return limit


# --- Bodies: a size limit that applies after decompression, and bounded parsing -----------------------------

MAX_BODY_BYTES = 8 * 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS
# httpx response -> httpcore connection -> h11 state. httpx does not expose it publicly, so a test covers the path.
_H11_STATE = ("stream", "_stream", "_httpcore_stream", "_stream", "_connection", "_h11_state")


class UnusableBody(Exception):
    """A response body that cannot be used; the message never quotes it."""


async def read_body(chunks: AsyncIterator[bytes], encoding: str, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """Return the decoded body; stop reading as soon as it exceeds the limit."""
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise UnusableBody("it uses a compression that was not requested")
    unzip = zlib.decompressobj(_GZIP) if encoding in ("gzip", "x-gzip") else None
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        part = chunk
        if unzip is not None:
            try:
                # A kilobyte of gzip can expand to a megabyte, so zlib must enforce the limit.
                part = unzip.decompress(chunk, limit + 1 - size)
            except zlib.error:
                raise UnusableBody("its gzip stream is broken") from None
        size += len(part)
        if size > limit:
            raise UnusableBody(f"it is longer than {limit // 1024} KiB")
        parts.append(part)
    if unzip is not None and not (unzip.eof and not unzip.unused_data):
        raise UnusableBody("its gzip stream is truncated or followed by other data")
    return b"".join(parts)


def count_values(body: bytes) -> int:
    """Return an upper bound on the number of values in a JSON text, without parsing it."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def parse_body(body: bytes, *, max_values: int = 20_000) -> JsonValue:
    """Parse the JSON in a body; reject NaN and Infinity, which are not JSON.

    A body with more than `max_values` values is rejected unparsed, because parsing it would block the event loop.
    """
    if not body.strip():
        raise UnusableBody("it is empty")
    if count_values(body) > max_values:
        raise UnusableBody("it has far more values than requested")

    def reject_constant(constant: str) -> NoReturn:
        raise ValueError(constant)

    try:
        return json.loads(body.decode("utf-8"), parse_constant=reject_constant)
    except (ValueError, RecursionError):
        # Not chained, because these exceptions contain the whole body.
        actual = "an HTML page" if body.lstrip()[:1] == b"<" else "not JSON"
        raise UnusableBody(f"it is {actual}") from None


def dump_body(value: object) -> bytes:
    """Encode a request body as JSON; lone surrogates, which no server can decode, become question marks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


async def close_if_trailing_data(response: httpx.Response) -> bool:
    """Close the connection if data follows the response, because it would be taken for the next one; return whether."""
    state: object = response
    for name in _H11_STATE:
        state = getattr(state, name, None)
    trailing, _ended = getattr(state, "trailing_data", (b"", False))
    if trailing:
        await response.extensions["network_stream"].aclose()
    return bool(trailing)
