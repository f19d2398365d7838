"""The one place that talks HTTP to providers: rerankers and chat endpoints go through `ProviderClient`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from resift.deadline import Deadline
from resift.errors import (
    ConfigError,
    DeadlineExceeded,
    ProviderBadAnswer,
    ProviderError,
    ProviderTimeout,
    ProviderUnreachable,
    require,
)
from resift.rerankers.hosted.bodies import (
    UnusableBody,
    close_if_trailing_data,
    dump_json,
    parse_json,
    parts_in,
    read_capped,
)
from resift.rerankers.hosted.endpoint import Endpoint
from resift.rerankers.hosted.http_clients import prepare, warm_client
from resift.rerankers.hosted.keys import Secret
from resift.rerankers.hosted.limits import shared_limit
from resift.rerankers.hosted.statuses import error_for, message_in
from resift.types import JsonValue

if TYPE_CHECKING:
    import httpx

# Enough for any message; an error page may be of any size, and nobody waits for it.
_ERROR_BODY = 64 * 1024
_ERROR_BODY_S = 0.1
# A pool may hold several connections that one restart of the server closed.
_STALE_TRIES = 3


class _StaleConnection(Exception):
    """A warm connection was closed by the server just as we took it: the request was not looked at."""


class _Seen:
    """How far one request got, as httpx traces it."""

    def __init__(self) -> None:
        self.connect = False
        self.answer = False

    async def trace(self, event: str, _info: object) -> None:
        if event.startswith("connection.connect"):
            self.connect = True


class ProviderClient:
    """Posts JSON to one provider and returns JSON, or raises a ProviderError that says what went wrong.

    Connections stay warm per event loop, and all clients of one provider share a concurrency limit.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        key: Secret | None = None,
        *,
        timeout_s: float,
        max_concurrency: int,
        message_at: Sequence[str] = (),
    ) -> None:
        prepare(endpoint)
        self._httpx = require("httpx", extra="hosted")
        at_least(endpoint.provider, "timeout_s", timeout_s, above=0)
        at_least(endpoint.provider, "max_concurrency", max_concurrency, least=1)
        self.endpoint = endpoint
        self.key = key
        self.timeout_s = timeout_s
        self._message_at = tuple(message_at)
        self._limit = shared_limit(endpoint.provider, endpoint.origin, max_concurrency)

    def breaker_key(self, model: str | None) -> tuple[str, str, str, str]:
        """Return what fails together: provider, base URL, model, and a name for the key that hides it."""
        return (self.endpoint.provider, self.endpoint.base_url, model or "", self.key.id if self.key else "")

    def __repr__(self) -> str:
        return f"ProviderClient({self.endpoint.provider!r}, {self.endpoint.base_url!r})"

    async def post(self, path: str, payload: object, *, deadline: Deadline) -> JsonValue:
        """Return the parsed answer of a 200, within the deadline and the client's own timeout.

        Raises DeadlineExceeded when time ran out before the provider was asked, ProviderTimeout after.
        """
        provider = self.endpoint.provider
        content = dump_json(payload)
        until = deadline.sooner(self.timeout_s)
        if until.expired:
            raise DeadlineExceeded(f"No time left to ask {provider}.")
        # The breaker must not count a wait for our own limit against the provider.
        asked = False
        try:
            async with asyncio.timeout(until.timeout_s), self._limit.permit():
                asked = True
                body = await self._exchange(path, content)
        except TimeoutError as exc:
            if isinstance(exc, ProviderError):
                raise
            if not asked:
                raise DeadlineExceeded(f"No free connection to {provider} in the time given.") from None
            raise ProviderTimeout(
                f"{provider} gave no complete answer in the time given.", provider=provider
            ) from None
        try:
            # Answers grow with what was asked: a row per document, and some echo the documents.
            return parse_json(body, most_parts=20_000 + 16 * parts_in(content))
        except UnusableBody as exc:
            raise self._bad_answer(exc) from None

    async def _exchange(self, path: str, content: bytes) -> bytes:
        for _ in range(_STALE_TRIES):
            try:
                return await self._attempt(path, content)
            except _StaleConnection:
                continue
        return await self._attempt(path, content, stale_is_failure=True)

    async def _attempt(self, path: str, content: bytes, *, stale_is_failure: bool = False) -> bytes:
        httpx = self._httpx
        client = await warm_client(self.endpoint)
        seen = _Seen()
        try:
            async with client.stream(
                "POST",
                self.endpoint.url(path),
                content=content,
                headers=self._headers(),
                extensions={"trace": seen.trace},
            ) as response:
                seen.answer = True
                if response.status_code != 200:
                    raise await self._refusal(response)
                encoding = response.headers.get("content-encoding", "").strip().lower()
                body = await read_capped(response.aiter_raw(), encoding)
                if await close_if_trailing_data(response):
                    raise UnusableBody("something follows after its end")
                return body
        except UnusableBody as exc:
            raise self._bad_answer(exc) from None
        # Not chained: a transport error holds the request, and with it the key and the texts.
        except (httpx.TransportError, httpx.StreamError) as exc:
            if seen.answer and isinstance(exc, httpx.RemoteProtocolError):
                raise self._bad_answer(UnusableBody("it broke off before its end")) from None
            # Neither a new connection nor an answer: a warm one was dead, and nothing was processed.
            if not (seen.answer or seen.connect or stale_is_failure):
                raise _StaleConnection from None
            raise self._unreachable(exc) from None

    def _headers(self) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            # Only what is unpacked within the cap of the body.
            "Accept-Encoding": "gzip",
            "User-Agent": "resift",
        }
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key.reveal()}"
        return headers

    async def _refusal(self, response: httpx.Response) -> ProviderError:
        message = ""
        # A 5xx has no message about the request, and its body may be anything.
        if 400 <= response.status_code < 500:
            message = await self._message(response)
        return error_for(self.endpoint.provider, response.status_code, response.headers, message=message)

    async def _message(self, response: httpx.Response) -> str:
        """Read what the error answer says; an answer that is slow or broken says nothing."""
        encoding = response.headers.get("content-encoding", "")
        try:
            async with asyncio.timeout(_ERROR_BODY_S):
                body = await read_capped(response.aiter_raw(), encoding, cap=_ERROR_BODY)
            return message_in(parse_json(body), self._message_at)
        except (UnusableBody, TimeoutError, self._httpx.HTTPError):
            return ""

    def _bad_answer(self, why: UnusableBody) -> ProviderBadAnswer:
        provider = self.endpoint.provider
        return ProviderBadAnswer(f"{provider} answered 200, but {why}.", provider=provider, status=200)

    def _unreachable(self, exc: Exception) -> ProviderUnreachable:
        provider = self.endpoint.provider
        kind = type(exc).__name__
        what = "No connection to" if "Connect" in kind else "The connection broke to"
        hint = "Check the network and base_url."
        if "SSL" in str(exc):
            hint = "TLS failed: check that base_url is an https server whose certificate this machine trusts."
        return ProviderUnreachable(f"{what} {provider} ({kind}). {hint}", provider=provider)


def at_least(
    provider: str, name: str, value: float, *, least: float | None = None, above: float | None = None
) -> None:
    """Raise ConfigError unless the number is in range."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if number and (least is None or value >= least) and (above is None or value > above):
        return
    allowed = f"at least {least:g}" if least is not None else f"above {above:g}"
    raise ConfigError(f"{provider}: {name} is {value!r}; it must be {allowed}.")
