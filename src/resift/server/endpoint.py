"""One ASGI endpoint around an async function: reads, watches for a client that hangs up, answers failures."""

from __future__ import annotations

import asyncio
import logging
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from resift.deadline import Deadline
from resift.errors import DeadlineExceeded, InputError, ResiftError, RetrievalError
from resift.server.asgi import Receive, Scope, Send
from resift.server.bodies import ClientGone, dump_json, parse_json, read_body
from resift.server.error_forms import OWN, ErrorForm
from resift.server.failures import RequestFailed
from resift.server.request_info import RequestInfo, header_safe, info_of
from resift.server.schema import RequestSchema
from resift.types import JsonObject, JsonValue

if TYPE_CHECKING:
    from resift.server.serving import Serving

T = TypeVar("T")

DEADLINE_HEADER = "x-resift-deadline-ms"
_MILLISECONDS = re.compile(r"[0-9]{1,9}")

log = logging.getLogger("resift.server")


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back: JSON unless it is bytes already."""

    body: JsonValue
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"


@dataclass(slots=True)
class Call:
    """One request in the hands of its endpoint; `errors` may be exchanged once the dialect is known."""

    serving: Serving
    info: RequestInfo
    scope: Scope
    receive: Receive
    errors: ErrorForm

    async def json(self) -> JsonValue:
        """Return the body as a JSON value."""
        serving, limits = self.serving, self.serving.options.limits
        serving.check_open()
        # A bad header is refused before a body is read.
        self.deadline(None)
        with serving.admission.reading(self.info) as received:
            body = await read_body(
                self.receive, self.info.headers, limit=limits.max_body_bytes, note=received
            )
        async with serving.turns:
            value = parse_json(body, unique_keys=serving.options.strict)
            # Others come in between: a refusal or a health check must not wait for a hundred parsers.
            await asyncio.sleep(0)
        return value

    async def request(
        self, schema: RequestSchema | Callable[[JsonValue], RequestSchema], *, dialect: str = "resift"
    ) -> JsonObject:
        """Return the body, checked; a function finds the schema where several kinds of body are taken."""
        self.info.dialect = dialect
        body = await self.json()
        return (schema(body) if callable(schema) else schema).read(body)

    def deadline(self, given_ms: int | None) -> Deadline:
        """Return the earlier of the deadlines in the body and in the header."""
        written = self.info.headers.get(DEADLINE_HEADER)
        if written is not None and not _MILLISECONDS.fullmatch(written):
            raise RequestFailed("invalid", f"{DEADLINE_HEADER} must be a whole number of milliseconds")
        asked = [ms for ms in (given_ms, None if written is None else int(written)) if ms is not None]
        return Deadline.after(min(asked) / 1000 if asked else None)

    @asynccontextmanager
    async def admitted(self, deadline: Deadline) -> AsyncIterator[None]:
        """Hold a place for the request's pairs while they are worked on, or raise RequestFailed."""
        info, admission = self.info, self.serving.admission
        body_bytes = info.body_bytes if info.documents else None
        async with admission.admitted(info.pairs, wait_s=deadline.timeout_s, body_bytes=body_bytes):
            yield

    async def unless_gone(self, work: Coroutine[object, object, T]) -> T:
        """Return what the work returns; a client that hangs up stops it."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_gone(self.receive))
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            # Awaited, so that its place is free before the next request is let in.
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            raise ClientGone
        finally:
            gone.cancel()
            task.cancel()


class Endpoint:
    """An ASGI app that hands each request to one function and turns what it raises into an answer."""

    def __init__(
        self,
        serving: Serving,
        route: str,
        function: Callable[[Call], Awaitable[Reply]],
        *,
        errors: ErrorForm = OWN,
    ) -> None:
        self._serving = serving
        self._route = route
        self._function = function
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        info = info_of(scope)
        info.route = self._route
        call = Call(self._serving, info, scope, receive, self._errors)
        try:
            reply = await self._function(call)
        except ClientGone:
            info.status = 499
            return
        except Exception as exc:
            reply = failure_reply(failure_of(exc, info), call.errors, info)
        await send_reply(send, reply, info, head=scope["method"] == "HEAD")


def failure_of(exc: Exception, info: RequestInfo) -> RequestFailed:
    """Return what a client is told of an exception. Only our own may speak: others may quote a text."""
    if isinstance(exc, RequestFailed):
        return exc
    if isinstance(exc, InputError):
        return RequestFailed("invalid", str(exc))
    if isinstance(exc, (RetrievalError, DeadlineExceeded)):
        return RequestFailed("upstream", str(exc))
    where = "".join(traceback.format_tb(exc.__traceback__))
    log.error("request %s failed: %s\n%s", info.id, type(exc).__name__, where)
    message = str(exc) if isinstance(exc, ResiftError) else "The server made a mistake; its log has this id"
    return RequestFailed("internal", message)


def failure_reply(failed: RequestFailed, errors: ErrorForm, info: RequestInfo) -> Reply:
    """Return the answer that tells a failure in one API's form."""
    status = errors.status(failed.kind)
    headers = {"retry-after": str(failed.retry_after_s)} if failed.retry_after_s else {}
    if failed.kind == "unauthorized":
        headers["www-authenticate"] = "Bearer"
    return Reply(errors.body(failed, status, info.id), status, headers)


async def send_reply(send: Send, reply: Reply, info: RequestInfo, *, head: bool = False) -> None:
    """Send an answer with what is known about how it was made."""
    body = reply.body if isinstance(reply.body, bytes) else dump_json(reply.body)
    facts = {**info.answer_headers, **reply.headers}
    for name, value in (("tier", info.tier), ("degraded", info.degraded), ("note", info.note)):
        if value:
            facts[f"x-resift-{name}"] = header_safe(value)
    headers = [(b"content-type", reply.media_type.encode()), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode("latin-1", "replace")) for name, value in facts.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
