"""Handle one HTTP request: its headers, its size limits, its admission, and its response."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from resift.deadline import Deadline
from resift.errors import DeadlineExceeded, InputError, ResiftError, RetrievalError
from resift.server.schema import OWN, ErrorForm, RequestFailed, error_form_for_path
from resift.types import JsonObject, JsonValue, Ranking, StageKind

if TYPE_CHECKING:
    from resift.server.connections import LimitedConnection
    from resift.server.state import ServerState

Scope: TypeAlias = MutableMapping[str, JsonValue]
Message: TypeAlias = MutableMapping[str, JsonValue]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
T = TypeVar("T")

DEADLINE_HEADER = "x-resift-deadline-ms"
_MILLISECONDS = re.compile(r"[0-9]{1,9}")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
NO_DEADLINE = Deadline.never()
_SINGLE_HEADERS = ("authorization", "content-length", "host")
_PROCESS_ID = os.urandom(10).hex()
_request_numbers = itertools.count(1)

LARGE_BODY_BYTES = 256 << 10  # only a few larger bodies are parsed concurrently, so other requests get their turn
WATCH_AFTER_S = 0.02  # work that takes longer than this is cancelled when the client disconnects

log = logging.getLogger("resift.server")

current_connection: ContextVar[LimitedConnection | None] = ContextVar("current_connection", default=None)
"""The TCP connection of a request, which enforces time limits. Set only if `resift serve` runs the app."""


class ClientDisconnected(Exception):
    """The client disconnected before it received the response."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Properties of a ranking for the response headers, the log and the metrics."""

    tier: str = ""
    degraded: str = ""
    note: str = ""
    unscored: int = 0

    @classmethod
    def from_ranking(cls, ranking: Ranking) -> Outcome:
        """Return the properties of one ranking."""
        note = "; ".join(filter(None, (record.note for record in ranking.trace.by_kind(StageKind.RERANK))))
        if not ranking.degraded:
            return cls(ranking.tier or "", note=note)
        return cls(ranking.tier or "", ranking.reason or "degraded", note, len(ranking.unscored))

    def merge(self, other: Outcome) -> Outcome:
        """Return the combined properties of two rankings of one request."""
        degraded, unscored = other.degraded or self.degraded, other.unscored or self.unscored
        return Outcome(other.tier, degraded, self.note or other.note, unscored)

    def headers(self) -> dict[str, str]:
        """Return a response header for each known property."""
        facts = {f"x-resift-{name}": str(getattr(self, name)) for name in self.__slots__ if getattr(self, name)}
        # Use printable ASCII, truncated to a length that proxies accept.
        return {name: "".join(c if " " <= c <= "~" else "?" for c in fact[:300]) for name, fact in facts.items()}


@dataclass(frozen=True, slots=True)
class Response:
    """Status, headers and body. A body that is not bytes is encoded as JSON."""

    body: msgspec.Struct | JsonObject | Sequence[msgspec.Struct | JsonObject] | bytes
    status: int = 200
    headers: MutableMapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"
    outcome: Outcome | None = None


class Request:
    """One request. Logs and metrics use its properties, never its texts."""

    def __init__(self, server: ServerState, scope: Scope, receive: Receive) -> None:
        self.server = server
        self.scope = scope
        self.receive = receive
        self.started_s = time.monotonic()
        self.method: str = scope["method"]
        self.path: str = route_path(scope) if scope.get("root_path") else scope["path"]
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.id = self.headers.get("x-request-id", "")
        if not _REQUEST_ID.fullmatch(self.id):
            # A process id with a counter is unique and cheaper than a random id.
            self.id = f"{_PROCESS_ID}{next(_request_numbers):012x}"
        length = self.headers.get("content-length", "")[:19]
        self.body_bytes = int(length) if length.isdecimal() else None
        self.errors: ErrorForm | None = None
        self.deadline_ms: int | None = None
        self.route = "unknown"
        self.dialect = ""
        self.pairs = self.documents = self.status = 0
        self.counted = self.disconnected = False
        self.outcome: Outcome | None = None
        self._watcher: asyncio.Future[None] | asyncio.TimerHandle | None = None

    def check(self) -> None:
        """Reject a request before its key and route are checked, because this must be cheap under overload."""
        if len(self.headers) != len(self.scope["headers"]):
            names = [name for name, _ in self.scope["headers"]]
            for name in _SINGLE_HEADERS:
                # A proxy may have checked the other value.
                if names.count(name.encode()) > 1:
                    raise RequestFailed("invalid", f"The header {name} is repeated; send it once")
        if self.method == "POST":
            self.server.admission.check(self.body_bytes)

    async def read(self, parse: Callable[[bytes], T], *, dialect: str = "resift") -> T:
        """Read the body and parse it with a function such as `RequestReader.read`."""
        self.dialect = dialect
        body = await self.read_body()
        if len(body) < LARGE_BODY_BYTES:
            return parse(body)
        async with self.server.parsing:
            return await asyncio.to_thread(parse, body)

    async def read_body(self) -> bytes:
        """Return the bytes of the body. A body that is too long is rejected as early as possible."""
        server, limit = self.server, self.server.options.limits.max_body_bytes
        server.check_open()
        deadline = self.headers.get(DEADLINE_HEADER)
        if deadline is not None:
            if not _MILLISECONDS.fullmatch(deadline):
                raise RequestFailed("invalid", f"{DEADLINE_HEADER} must be an integer in milliseconds")
            self.deadline_ms = int(deadline)
        # A small compressed body can expand to gigabytes, and rerank clients do not send compressed bodies.
        if self.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise RequestFailed("invalid", "The body is compressed; send it uncompressed")
        admission, parts, received = server.admission, [], 0
        size = self.body_bytes or 0
        try:
            while size <= limit:
                message = await self.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                parts.append(message.get("body", b""))
                size = received = received + len(parts[-1])
                admission.hold_bytes(len(parts[-1]))
                if not message.get("more_body", False):
                    break
        finally:
            admission.bytes_held -= received
        if size > limit:
            raise RequestFailed("too_large", f"The body is longer than {limit} bytes")
        admission.requests += 1
        self.counted = True
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            self._watcher = loop.call_later(WATCH_AFTER_S, self._watch, task)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _watch(self, task: asyncio.Task[object]) -> None:
        """Cancel the task of this request when the client disconnects."""

        async def cancel_on_disconnect() -> None:
            while (await self.receive())["type"] != "http.disconnect":
                pass
            self.disconnected = True
            task.cancel()

        self._watcher = asyncio.ensure_future(cancel_on_disconnect())

    async def respond(self, handler: Handler) -> Response:
        """Return the response of a handler. Raise ClientDisconnected if the client disconnects before."""
        try:
            return await handler(self)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.disconnected and task is not None and not task.uncancel():
                raise ClientDisconnected from None
            raise
        finally:
            if self._watcher is not None:
                self._watcher.cancel()

    def deadline(self, body_ms: int | None = None) -> Deadline:
        """Return the earlier of the deadlines in the body and in the header, measured from the arrival."""
        milliseconds = [ms for ms in (body_ms, self.deadline_ms) if ms is not None]
        if not milliseconds:
            return NO_DEADLINE
        elapsed_s = time.monotonic() - self.started_s
        return Deadline.after(max(0.0, min(milliseconds) / 1000 - elapsed_s))

    def admit(self, pairs: int, documents: int, deadline: Deadline) -> AbstractAsyncContextManager[None]:
        """Admit this many pairs while the context is open, or raise RequestFailed."""
        self.pairs, self.documents = pairs, documents
        body_bytes = self.body_bytes if documents else None
        return self.server.admission.admit(pairs, deadline=deadline, body_bytes=body_bytes)

    async def before_deadline(self, deadline: Deadline, work: Awaitable[T]) -> T:
        """Return the result of work without partial results, or raise RequestFailed after the deadline."""
        try:
            async with asyncio.timeout(deadline.timeout_s):
                return await work
        except TimeoutError:
            raise RequestFailed("deadline", "The deadline passed before there was a result") from None

    def failure(self, exc: Exception) -> Response:
        """Return the response for an exception, in the error format of the route or the dialect."""
        if isinstance(exc, RequestFailed):
            error = exc
        elif isinstance(exc, InputError):
            error = RequestFailed("invalid", str(exc))
        elif isinstance(exc, RecursionError):  # since Python 3.12, parsers accept deeper nesting than our functions
            error = RequestFailed("invalid", "The body is nested too deeply")
        elif isinstance(exc, (RetrievalError, DeadlineExceeded)):
            error = RequestFailed("upstream", str(exc))
        else:
            stack = "".join(traceback.format_tb(exc.__traceback__))
            log.error("request %s failed: %s\n%s", self.id, type(exc).__name__, stack)
            # Clients see only messages of Resift errors, because others may quote a document.
            is_public = isinstance(exc, ResiftError)
            message = str(exc) if is_public else "Internal error; see the server's log for this id"
            error = RequestFailed("internal", message)
        form = self.errors or error_form_for_path(self.path)
        status, body = form.body(error, self.id)
        headers = {"retry-after": str(error.retry_after_s)} if error.retry_after_s else {}
        if error.kind == "unauthorized":
            headers["www-authenticate"] = "Bearer"
        return Response(body, status, headers)

    async def send(self, send: Send, response: Response) -> None:
        """Send a response with the headers that describe its ranking."""
        body = response.body if isinstance(response.body, bytes) else encode_json(response.body)
        self.outcome = response.outcome
        headers = {"content-type": response.media_type, "content-length": str(len(body))}
        if response.outcome is not None:
            headers |= response.outcome.headers()
        headers.update(response.headers)
        pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": response.status, "headers": pairs})
        await send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]

_WITH_BODY = (400, 401, 404, 413, 422, 429, 500, 502, 503)
_WITHOUT_BODY = (401, 500, 502, 503)


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one or more paths, which are separated by spaces.

    Failures use the first format in `errors` until the handler sets another one.
    """

    method: str
    path: str
    summary: str
    run: Handler
    requests: Sequence[type[msgspec.Struct]] = ()
    answers: Sequence[object] = ()
    _: KW_ONLY
    media_type: str = "application/json"
    errors: Sequence[ErrorForm] = (OWN,)
    statuses: Mapping[int, object] = field(default_factory=dict)
    needs_key: bool = True

    def responses(self) -> Iterator[tuple[int, Sequence[object], str]]:
        """Yield the status, the types of the body and the media type of every possible response."""
        yield 200, self.answers, self.media_type
        failures = {form.type: None for form in self.errors}
        for status in _WITH_BODY if self.requests else _WITHOUT_BODY:
            if status not in self.statuses:
                yield status, tuple(failures), "application/json"
        for status, answer in self.statuses.items():
            yield status, (answer,), "application/json"


class RouteTable:
    """Dispatches requests by path and method. Unknown methods get 405, unknown paths 404."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._paths: dict[str, dict[str, Operation]] = {}
        for path, operation in [(path, each) for each in operations for path in each.path.split()]:
            methods = self._paths.setdefault(path, {})
            methods[operation.method] = operation
            if operation.method == "GET":
                methods.setdefault("HEAD", operation)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the operation for a request and send its response."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        request: Request = scope["resift.request"]
        methods = self._paths.get(request.path, {})
        operation = methods.get(request.method)
        allowed = ", ".join(sorted(methods))
        try:
            if operation is None and allowed:
                raise RequestFailed("method", f"This method is not allowed; allowed: {allowed}")
            if operation is None:
                raise RequestFailed("not_found", "No route matches this path; /openapi.json lists the routes")
            request.route, request.errors = request.path, operation.errors[0]
            response = await request.respond(operation.run)
        except ClientDisconnected:
            request.status = 499
            return
        except Exception as exc:
            response = request.failure(exc)
            if operation is None and allowed:
                response.headers["allow"] = allowed
        await request.send(send, response)


def route_path(scope: Scope) -> str:
    """Return the path without the mount prefix of this app, as Starlette does."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and (path == root or path.startswith(f"{root}/")):
        return path[len(root) :]
    return path


async def run_in_own_loop(make_work: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run async work that computes for long between two awaits in a thread with its own, cancellable event loop."""
    cancel_function: Future[Callable[[], object]] = Future()

    def run() -> T:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            task = loop.create_task(make_work())
            cancel_function.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
            return loop.run_until_complete(task)

    thread = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        if not thread.done():
            thread.add_done_callback(lambda task: task.cancelled() or task.exception())
            with suppress(RuntimeError):  # the loop has already ended
                cancel_function.result(1.0)()
        raise


def encode_json(value: object) -> bytes:
    """Return the JSON of a response body."""
    try:
        return msgspec.json.encode(value, enc_hook=_encode_other)
    except UnicodeEncodeError:  # a lone surrogate in a document
        text = json.dumps(msgspec.to_builtins(value, enc_hook=_encode_other), ensure_ascii=False)
        return text.encode("utf-8", "replace")


def _encode_other(value: object) -> object:
    if isinstance(value, str):  # Markup is a subclass of str
        return str.__str__(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # a NumPy scalar or array in metadata
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")
