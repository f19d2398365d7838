"""Warm connections: one httpx client per event loop and provider, closed when its loop shuts down."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from resift.errors import require
from resift.rerankers.hosted.endpoint import Endpoint

_Pool = dict[tuple[str, str], tuple[Any, AsyncGenerator[None, None]]]

_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()
_lock = threading.Lock()


def prepare(endpoint: Endpoint) -> None:
    """Load now what the first request would load: together it takes longer than some deadlines."""
    require("httpx", extra="hosted")
    for late in ("httpcore", "anyio._backends._asyncio"):
        with suppress(ImportError):
            import_module(late)
    _tls(plain=endpoint.base_url.startswith("http:"))


async def warm_client(endpoint: Endpoint) -> Any:
    """Return the running loop's httpx.AsyncClient for an endpoint, opening it on first use."""
    pool = _pool_of(asyncio.get_running_loop())
    key = (endpoint.provider, endpoint.origin)
    if key not in pool:
        client = _new_client(endpoint)
        lifetime = _lifetime(client)
        # Nothing else runs between the check above and this line: anext suspends nowhere.
        await anext(lifetime)
        pool[key] = (client, lifetime)
    return pool[key][0]


def _pool_of(loop: asyncio.AbstractEventLoop) -> _Pool:
    with _lock:
        if loop not in _pools:
            # A loop that was closed without ceremony is held by its own transports: let go of it.
            for gone in [other for other in _pools if other.is_closed()]:
                del _pools[gone]
        return _pools.setdefault(loop, {})


async def close_connections() -> None:
    """Close all warm connections of the running loop; the next call opens new ones."""
    with _lock:
        pool = _pools.pop(asyncio.get_running_loop(), {})
    for _, lifetime in pool.values():
        await lifetime.aclose()


async def _lifetime(client: Any) -> AsyncGenerator[None, None]:
    # asyncio.run closes every open async generator before it closes its loop, and so the sockets.
    try:
        yield
    finally:
        await client.aclose()


def _new_client(endpoint: Endpoint) -> Any:
    httpx = require("httpx", extra="hosted")
    return httpx.AsyncClient(
        follow_redirects=False,
        timeout=None,  # the deadline is enforced around the whole exchange
        verify=_tls(plain=endpoint.base_url.startswith("http:")),
        trust_env=not endpoint.loopback,  # a proxy of the environment must not see loopback traffic
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60.0),
    )


@cache
def _tls(*, plain: bool) -> ssl.SSLContext:
    # Loading certificates takes tens of milliseconds: once per process, and never for plain http.
    if plain:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context: ssl.SSLContext = require("httpx", extra="hosted").create_ssl_context()
    return context
