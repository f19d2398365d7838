"""What stands between the hub's client and the network while a model is fetched: nothing gets past it.

Every request, redirects included, is https (or http to this machine, from this machine), carries no token and
asks for plain bytes; every answer is no longer than pinned, begins where asked, and ends in time.
"""

from __future__ import annotations

import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from resift.errors import ModelFileError, require
from resift.models.https_only import LOOPBACK, check_url

_SENT = {"user-agent": "resift", "accept-encoding": "identity"}
_NEVER_SENT = ("authorization", "cookie", "x-amzn-trace-id", "x-request-id")
_MAX_REDIRECTS = 5


class TookTooLong(ModelFileError):
    """The time for the whole model is over; what has arrived stays."""


class Interrupted(OSError):
    """The connection failed or broke; the client's own retries sleep, ours go on from what has arrived."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may do."""

    what: str
    local: bool
    done: int
    size: int
    ends_at: float
    clock: Callable[[], float]

    def check_time(self) -> None:
        """Raise when the time for the whole model is over."""
        if self.clock() > self.ends_at:
            raise TookTooLong(f"{self.what} took too long. Try again: it goes on from there.")

    def check_url(self, url: str) -> None:
        """Refuse addresses that are not https; http only where the hub itself is on this machine."""
        if urllib.parse.urlsplit(check_url(url)).scheme == "http" and not self.local:
            raise ModelFileError("The hub redirects from https to http, which is refused.")

    def check_answer(self, status: int, headers: Any) -> None:
        """Refuse answers that cannot be the rest of the pinned file."""
        if status not in (200, 206):
            return
        if headers.get("Content-Encoding", "identity") != "identity":
            raise ModelFileError(f"{self.what} came compressed, which was not asked for.")
        begins = headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
        if status == 206 and begins != str(self.done):
            raise ModelFileError(f"{self.what} went on from another place than asked. Try again.")
        length = headers.get("Content-Length", "")
        missing = self.size - (self.done if status == 206 else 0)
        if length.isdigit() and int(length) > missing:
            raise ModelFileError(f"{self.what} is larger than the {self.size:,} bytes pinned.")


_limits: ContextVar[Limits | None] = ContextVar("resift hub limits", default=None)
_lock = threading.RLock()


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Hold requests of this thread to these limits."""
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)


@contextmanager
def guarded_client(*, local: bool) -> Iterator[None]:
    """Let the hub's client speak through the guard; what it used before is put back afterwards."""
    hub_http = require("huggingface_hub.utils._http", extra="local")
    with _lock:
        before = getattr(hub_http, "_GLOBAL_CLIENT_FACTORY", hub_http.default_client_factory)
        # Version 2 of the hub's client stands on httpx2, version 1 on httpx: the guard must be of its kind.
        httpx = getattr(hub_http, "httpx2", None) or hub_http.httpx
        hub_http.set_client_factory(lambda: _client(httpx, local=local))
        try:
            yield
        finally:
            hub_http.set_client_factory(before)


def _client(httpx: ModuleType, *, local: bool) -> Any:
    proxy = None if local else urllib.request.getproxies().get("https")
    guard = _guard_class(httpx)(httpx.HTTPTransport(proxy=proxy))
    # No environment: proxies that it names would be mounted beside the guard.
    return httpx.Client(
        transport=guard, follow_redirects=True, max_redirects=_MAX_REDIRECTS, timeout=30.0, trust_env=False
    )


def _guard_class(httpx: Any) -> Any:
    timed = _timed_class(httpx)

    class Guard(httpx.BaseTransport):  # type: ignore[misc]  # a class of a library that may be missing
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def handle_request(self, request: Any) -> Any:
            limits = _limits.get()
            if limits is None:  # somebody else's, who uses the same client
                return self.inner.handle_request(request)
            limits.check_time()
            limits.check_url(str(request.url))
            for name in _NEVER_SENT:
                request.headers.pop(name, None)
            request.headers.update(_SENT)
            try:
                response = self.inner.handle_request(request)
            except httpx.TransportError as exc:
                raise Interrupted(str(exc) or type(exc).__name__) from exc
            limits.check_answer(response.status_code, response.headers)
            response.stream = timed(response.stream, limits)
            return response

        def close(self) -> None:
            self.inner.close()

    return Guard


def _timed_class(httpx: Any) -> Any:
    class Timed(httpx.SyncByteStream):  # type: ignore[misc]  # a class of a library that may be missing
        def __init__(self, stream: Any, limits: Limits) -> None:
            self.stream, self.limits = stream, limits

        def __iter__(self) -> Iterator[bytes]:
            # A broken stream ends early instead of raising: the client then writes what it has gathered,
            # finds the file too short, and the next attempt goes on from there.
            with suppress(httpx.TransportError):
                for chunk in self.stream:
                    self.limits.check_time()
                    yield chunk

        def close(self) -> None:
            self.stream.close()

    return Timed


def is_local(url: str) -> bool:
    """Say whether the hub is a server on this machine."""
    return urllib.parse.urlsplit(url).hostname in LOOPBACK
