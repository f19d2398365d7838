"""`serve_app`: the ASGI app that `resift serve`, Ray Serve or any other ASGI server runs."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from resift.errors import require
from resift.pipeline.pipeline import Pipeline
from resift.protocols import Embedder, Scorer
from resift.server import embedding_routes, info_routes, judge_routes, rankings, rerank_routes, search_routes
from resift.server.endpoint import App, Message, Outcome, Receive, Request, RouteTable, Scope, Send, current_connection
from resift.server.keys import AccessMiddleware
from resift.server.schema import RequestFailed
from resift.server.server_options import ServerOptions
from resift.server.state import ServerState
from resift.validation import check_arguments

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Mount

    from resift.server.connections import LimitedConnection

Lifespan = Callable[[object], AbstractAsyncContextManager[object]]

access_log = logging.getLogger("resift.server.access")


@check_arguments
def serve_app(
    options: ServerOptions | None = None,
    *,
    scorer: Scorer | None = None,
    embedder: Embedder | None = None,
    pipeline: Pipeline | None = None,
    mounts: Mapping[str, App] | None = None,
    lifespans: Sequence[Lifespan] = (),
) -> Starlette:
    """Return an ASGI app. Models are loaded in a thread after startup; `/readyz` reports when they are ready.

    The scorer, embedder and pipeline replace those in the options. `mounts` are other ASGI apps by path, behind the
    same keys. `lifespans` are entered at startup and exited at shutdown. `app.state.server` is the shared state.
    """
    require("starlette", extra="server")
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    server = ServerState(options or ServerOptions(), scorer=scorer, embedder=embedder, pipeline=pipeline)
    search = search_routes.SearchService(server)
    operations = [
        *rerank_routes.rerank_operations(server),
        *info_routes.info_operations(server, search),
        *embedding_routes.embedding_operations(server),
        *search_routes.search_operations(server, search),
        *rankings.fuse_operations(server),
        *judge_routes.judge_operations(server, search),
    ]
    table = RouteTable([*operations, *info_routes.openapi_operations(operations)])
    routes: list[Route | Mount] = []
    for path, mounted in (mounts or {}).items():
        mount = Mount(path, app=mounted)
        routes += [Route(path, endpoint=_MountRoot(mount)), mount]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for enter in lifespans:
                await stack.enter_async_context(enter(app))
            for part in (server, search):
                stack.push_async_callback(part.close)
            server.start()
            if server.accept_when_ready:
                await server.wait_until_loaded()
            yield

    app = Starlette(routes=routes, middleware=_list_middleware(server), lifespan=lifespan)
    app.router.redirect_slashes = False
    # Mounts come first. The route table handles all other paths, including unknown ones.
    app.router.default = table
    app.state.server = app.state.serving = server
    return app


def _list_middleware(server: ServerState) -> list[Middleware]:
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware

    hosts, origins = server.options.allowed_hosts, list(server.options.cors_origins)
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type", "x-resift-deadline-ms", "x-request-id"],
        expose_headers=["x-request-id", "x-resift-tier", "x-resift-degraded", "x-resift-note", "retry-after"],
    )
    return [
        Middleware(RequestLogMiddleware, server=server),
        *([cors] if origins else []),
        Middleware(AccessMiddleware, keys=server.keys, allowed_hosts=hosts, origins=origins),
    ]


class RequestLogMiddleware:
    """Assigns an id to each request, logs and counts it, and sends an error if no response was sent."""

    def __init__(self, app: App, server: ServerState) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request to the app."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        server = self._server
        if server.phase == "starting":
            server.start()  # an enclosing app may not send lifespan events
        started_s = time.perf_counter()
        request = scope["resift.request"] = Request(server, scope, receive)
        connection = current_connection.get()
        if connection is not None:
            receive = request.receive = _report_body(request, connection)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
                headers = [*message["headers"], (b"x-request-id", request.id.encode())]
                if server.phase in ("draining", "closed"):
                    headers.append((b"connection", b"close"))
                message["headers"] = headers
            await send(message)

        try:
            request.check()
            await self._app(scope, receive, send_with_id)
        except asyncio.CancelledError:
            if request.status or server.phase != "closed":
                raise
            # The drain period is over. The client gets 503 and can try another server.
            error = RequestFailed("unavailable", "The server is shutting down", retry_after_s=1)
            await request.send(send_with_id, request.failure(error))
        except Exception as exc:
            response = request.failure(exc)
            if not request.status:
                await request.send(send_with_id, response)
        finally:
            if connection is not None:
                connection.response_sent()
            if request.counted:
                server.admission.requests -= 1
            elapsed_s = time.perf_counter() - started_s
            server.metrics.observe(request, elapsed_s)
            if server.options.access_log:
                _log_request(request, elapsed_s)


def _report_body(request: Request, connection: LimitedConnection) -> Receive:
    """Notify the connection when the request starts and when its body is complete."""
    receive = request.receive
    has_body = "transfer-encoding" in request.headers or request.headers.get("content-length", "0") not in ("", "0")
    connection.request_started(has_body=has_body, body_bytes=request.body_bytes)
    if not has_body:
        return receive

    async def receive_and_report() -> Message:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            connection.body_received()
        return message

    return receive_and_report


def _log_request(request: Request, elapsed_s: float) -> None:
    outcome = request.outcome or Outcome()
    line = {name: getattr(request, name) for name in ("id", "method", "route", "status")}
    line |= {"ms": round(elapsed_s * 1000, 1), "client": (request.scope.get("client") or ("",))[0]}
    facts = {name: getattr(request, name) for name in ("dialect", "documents", "pairs")}
    facts |= {"tier": outcome.tier, "degraded": bool(outcome.degraded)}
    line.update({name: value for name, value in facts.items() if value})
    access_log.info(json.dumps(line, separators=(",", ":")))


class _MountRoot:
    """Serves a mounted app without a trailing slash too. A redirect would make clients drop the request body."""

    def __init__(self, mount: Mount) -> None:
        self._mount = mount

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope_with_slash = {**scope, "path": f"{scope['path']}/"}
        if scope.get("raw_path"):
            scope_with_slash["raw_path"] = scope["raw_path"] + b"/"
        _, child = self._mount.matches(scope_with_slash)
        await self._mount.handle({**scope_with_slash, **child}, receive, send)
