"""Around every request: an id, a key, a log line without texts, counts, and the answer of last resort."""

from __future__ import annotations

import asyncio
import json
import logging
import time

from resift.server.asgi import App, Message, Receive, Scope, Send
from resift.server.endpoint import failure_of, failure_reply, send_reply
from resift.server.error_forms import error_form_at
from resift.server.failures import RequestFailed
from resift.server.health_routes import OPEN_PATHS
from resift.server.request_info import KEY, RequestInfo, info_of, new_info
from resift.server.serving import Serving

access_log = logging.getLogger("resift.server.access")


class Observing:
    """Gives each request its id, counts and logs it, and answers where nothing else did."""

    def __init__(self, app: App, serving: Serving) -> None:
        self._app = app
        self._serving = serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        # Lifespan events pass as they are.
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._serving.start()  # a server that mounts this app may not send it lifespan events
        info = scope[KEY] = new_info(scope)
        started_s = time.perf_counter()
        try:
            await self._passed_on(scope, receive, send, info)
        finally:
            self._serving.admission.answered(info)
            elapsed_s = time.perf_counter() - started_s
            if info.status == 499:
                self._serving.metrics.hangups.inc()
            self._serving.metrics.observe(info, elapsed_s)
            if self._serving.options.access_log:
                _log(scope, info, elapsed_s)

    async def _passed_on(self, scope: Scope, receive: Receive, send: Send, info: RequestInfo) -> None:
        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                info.status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", info.id.encode())]
                if self._serving.state in ("draining", "closed"):
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            # Before keys and routes: while there is too much work, a refusal must cost next to nothing.
            if scope["method"] == "POST":
                self._serving.admission.check(info)
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            if info.status or self._serving.state != "closed":
                raise
            # The time for work in flight is over: the client hears it, and may ask another server.
            late = RequestFailed("unavailable", "The server is shutting down", retry_after_s=1)
            await send_reply(noted, failure_reply(late, error_form_at(scope["path"]), info), info)
        except Exception as exc:
            failed = failure_of(exc, info)
            if not info.status:
                await send_reply(noted, failure_reply(failed, error_form_at(scope["path"]), info), info)


class Guarding:
    """Lets in who has a key: on every path but health and the playground's own files."""

    def __init__(self, app: App, serving: Serving) -> None:
        self._app = app
        self._serving = serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 401."""
        if scope["type"] != "http" or not self._serving.keys.needed or _is_open(scope):
            await self._app(scope, receive, send)
            return
        info = info_of(scope)
        # The path as routed; what a client writes into its Host header never decides.
        path: str = scope["path"]
        key = key_in(info.headers.get("authorization", ""), bare=error_is_tei(path))
        if key and self._serving.keys.allow(key):
            await self._app(scope, receive, send)
            return
        message = "The key is unknown" if key else "A key is needed: Authorization: Bearer KEY"
        failed = RequestFailed("unauthorized", message)
        await send_reply(send, failure_reply(failed, error_form_at(path), info), info)


def key_in(header: str, *, bare: bool = False) -> str:
    """Return the key of an Authorization header; an empty one is no key, a bare one counts for TEI only."""
    scheme, _, rest = header.strip().partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    return header.strip() if bare and not rest else ""


def error_is_tei(path: str) -> bool:
    """Return whether TEI's clients call this path: one of them sends its token without `Bearer`."""
    return path.startswith("/tei/") or path in ("/rerank", "/embed", "/info", "/")


def _is_open(scope: Scope) -> bool:
    path = scope["path"]
    reading = scope["method"] in ("GET", "HEAD")
    return reading and (path in OPEN_PATHS or path == "/" or path.startswith("/playground/"))


def _log(scope: Scope, info: RequestInfo, elapsed_s: float) -> None:
    line = {
        "id": info.id,
        "method": scope["method"],
        "route": info.route,
        "status": info.status,
        "ms": round(elapsed_s * 1000, 1),
        "client": (scope.get("client") or ("",))[0],
    }
    facts = {"dialect": info.dialect, "documents": info.documents, "pairs": info.pairs, "tier": info.tier}
    line.update({name: value for name, value in facts.items() if value})
    if info.degraded:
        line["degraded"] = True
    access_log.info(json.dumps(line, separators=(",", ":")))
