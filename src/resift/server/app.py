"""`serve_app`: the ASGI app that `resift serve`, Ray Serve or any other ASGI server runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from resift.errors import require
from resift.pipeline.pipeline import Pipeline
from resift.protocols import Embedder, Scorer
from resift.server.asgi import App, Receive, Scope, Send
from resift.server.ask_routes import Asking, ask_operations
from resift.server.embedding_routes import embedding_operations
from resift.server.endpoint import failure_reply, send_reply
from resift.server.error_forms import error_form_at
from resift.server.failures import RequestFailed
from resift.server.fuse_routes import fuse_operations
from resift.server.health_routes import health_operations, openapi_operations
from resift.server.judge_routes import judge_operations
from resift.server.middleware import Guarding, Observing
from resift.server.model_routes import model_operations
from resift.server.openapi import Operation
from resift.server.options import ServerOptions
from resift.server.playground_routes import playground_operations
from resift.server.request_info import info_of
from resift.server.rerank_routes import rerank_operations
from resift.server.score_routes import score_operations
from resift.server.search_routes import search_operations
from resift.server.search_work import Searching
from resift.server.serving import Serving
from resift.validation import check_arguments

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


@check_arguments
def serve_app(
    options: ServerOptions | None = None,
    *,
    scorer: Scorer | None = None,
    embedder: Embedder | None = None,
    pipeline: Pipeline | None = None,
    mounts: Mapping[str, App] | None = None,
    lifespans: Sequence[Lifespan] = (),
) -> Any:
    """Return an ASGI app. Models are loaded when it starts, beside the event loop; `/readyz` says when.

    A scorer, an embedder or a pipeline that is given is used instead of the one that the options name.
    `mounts` puts further ASGI apps under paths, behind the same keys; `lifespans` are entered at the start
    and left at the end. `app.state.serving` holds the shared parts.
    """
    require("starlette", extra="server")
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Mount, Route

    serving = Serving(options or ServerOptions(), scorer=scorer, embedder=embedder, pipeline=pipeline)
    searching = Searching(serving)
    asking = Asking(serving, searching)
    routes = _routes(operations_of(serving, searching, asking))
    for path, mounted in (mounts or {}).items():
        mount = Mount(path, app=mounted)
        routes += [Route(path, endpoint=_MountRoot(mount)), mount]
    middleware = [Middleware(Observing, serving=serving)]
    if serving.options.cors_origins:
        middleware.append(_cors(serving.options.cors_origins))
    middleware.append(Middleware(Guarding, serving=serving))

    lifespan = _lifespan([*lifespans, *(_closing(part) for part in (serving, searching, asking))], serving)
    app = Starlette(routes=routes, middleware=middleware, lifespan=lifespan)
    app.router.redirect_slashes = False
    app.router.default = _nothing_here
    app.state.serving = serving
    return app


def _lifespan(parts: Sequence[Lifespan], serving: Serving) -> Lifespan:
    @asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for enter in parts:
                await stack.enter_async_context(enter(app))
            await serving.before_accepting()
            yield

    return lifespan


def _closing(part: Serving | Searching | Asking) -> Lifespan:
    @asynccontextmanager
    async def closed_at_the_end(app: object) -> AsyncIterator[None]:
        yield
        await part.close()

    return closed_at_the_end


def operations_of(serving: Serving, searching: Searching, asking: Asking) -> list[Operation]:
    """Return all operations of a server, those that describe them last."""
    operations = [
        # The first routes are found first: those that are asked most.
        *rerank_operations(serving),
        *health_operations(serving),
        *model_operations(serving),
        *score_operations(serving),
        *embedding_operations(serving),
        *search_operations(serving, searching),
        *ask_operations(serving, asking),
        *fuse_operations(serving),
        *judge_operations(serving, searching),
        *playground_operations(serving, searching),
    ]
    return [*operations, *openapi_operations(serving, operations)]


def _routes(operations: Sequence[Operation]) -> list[Any]:
    from starlette.routing import Route

    by_path: dict[str, dict[str, App]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation.endpoint()
    return [Route(path, endpoint=_Methods(methods)) for path, methods in by_path.items()]


class _Methods:
    """The endpoints of one path by method; other methods get 405 with those that are allowed."""

    def __init__(self, endpoints: Mapping[str, App]) -> None:
        self._endpoints = dict(endpoints)
        if "GET" in self._endpoints:
            self._endpoints.setdefault("HEAD", self._endpoints["GET"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        allowed = ", ".join(sorted(self._endpoints))
        info = info_of(scope)
        info.answer_headers["allow"] = allowed
        failed = RequestFailed("method", f"The method is not allowed here; allowed: {allowed}")
        await send_reply(send, failure_reply(failed, error_form_at(scope["path"]), info), info)


class _MountRoot:
    """A mounted app at its path without the final slash: a redirect would make clients drop the body."""

    def __init__(self, mount: Any) -> None:
        self._mount = mount

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        slashed = {**scope, "path": f"{scope['path']}/"}
        if scope.get("raw_path"):
            slashed["raw_path"] = scope["raw_path"] + b"/"
        _, child = self._mount.matches(slashed)
        await self._mount.handle({**slashed, **child}, receive, send)


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    info = info_of(scope)
    failed = RequestFailed("not_found", "There is nothing at this path; /openapi.json lists what there is")
    await send_reply(send, failure_reply(failed, error_form_at(scope["path"]), info), info)


def _cors(origins: Sequence[str]) -> Any:
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware

    return Middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type", "x-resift-deadline-ms", "x-request-id"],
        expose_headers=["x-request-id", "x-resift-tier", "x-resift-degraded", "x-resift-note", "retry-after"],
    )
