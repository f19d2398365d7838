"""Warm connections: one httpx client per event loop and provider, closed when its loop shuts down."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from resift._internal.forking import ForkSafeLock, abandon, after_fork
from resift.errors import require
from resift.rerankers.hosted.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx

Clients = dict[tuple[str, str], tuple["httpx.AsyncClient", AsyncGenerator[None, None]]]
"""The open clients of one event loop, by provider and origin."""


class _ByLoop:
    """The open clients of every event loop; a forked child starts without any."""

    def __init__(self) -> None:
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Clients] = WeakKeyDictionary()
        self._lock = ForkSafeLock()
        after_fork(self)

    def of(self, loop: asyncio.AbstractEventLoop) -> Clients:
        """Return the clients of a loop, to look up and to add to."""
        with self._lock:
            if loop not in self._clients:
                # A loop that was closed without ceremony is held by its own transports: let go of it.
                for closed in [other for other in self._clients if other.is_closed()]:
                    del self._clients[closed]
            return self._clients.setdefault(loop, {})

    def pop(self, loop: asyncio.AbstractEventLoop) -> Clients:
        """Forget a loop and return what it had."""
        with self._lock:
            return self._clients.pop(loop, {})

    def forget_parent(self) -> None:
        """Leave the parent's connections alone: two processes on one TLS stream would break both."""
        abandon(dict(self._clients))
        self._clients = WeakKeyDictionary()


_by_loop = _ByLoop()


def prepare(endpoint: Endpoint) -> None:
    """Load now what the first request would load: together it takes longer than some deadlines."""
    require("httpx", extra="hosted")
    for late in ("httpcore", "h2.connection", "anyio._backends._asyncio"):
        with suppress(ImportError):
            import_module(late)
    _tls(plain=endpoint.base_url.startswith("http:"))


async def warm_client(endpoint: Endpoint) -> httpx.AsyncClient:
    """Return the running loop's httpx.AsyncClient for an endpoint, opening it on first use."""
    clients = _by_loop.of(asyncio.get_running_loop())
    key = (endpoint.provider, endpoint.origin)
    if key not in clients:
        client = _new_client(endpoint)
        lifetime = _lifetime(client)
        # Nothing else runs between the check above and this line: anext suspends nowhere.
        await anext(lifetime)
        clients[key] = (client, lifetime)
    return clients[key][0]


async def close_connections() -> None:
    """Close all warm connections of the running loop; the next call opens new ones."""
    for _, lifetime in _by_loop.pop(asyncio.get_running_loop()).values():
        await lifetime.aclose()


async def _lifetime(client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
    # asyncio.run closes every open async generator before it closes its loop, and so the sockets.
    try:
        yield
    finally:
        await client.aclose()


def _new_client(endpoint: Endpoint) -> httpx.AsyncClient:
    library = require("httpx", extra="hosted")
    made: httpx.AsyncClient = library.AsyncClient(
        # A redirect could lead the key and the texts to another address.
        follow_redirects=False,
        # Over TLS the server chooses the version; many requests then share one HTTP/2 connection.
        http2=find_spec("h2") is not None,
        timeout=None,  # the deadline is enforced around the whole exchange
        verify=_tls(plain=endpoint.base_url.startswith("http:")),
        trust_env=not endpoint.loopback,  # a proxy of the environment must not see loopback traffic
        # No cookies: a provider's session must not tie requests of different callers together.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        limits=library.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60.0),
    )
    return made


@cache
def _tls(*, plain: bool) -> ssl.SSLContext:
    # Loading certificates takes tens of milliseconds: once per process, and never for plain http.
    if plain:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context: ssl.SSLContext = require("httpx", extra="hosted").create_ssl_context()
    return context
