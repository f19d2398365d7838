"""Clients for rerank providers and chat endpoints; all HTTP requests to them are sent here."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from resift import errors
from resift.deadline import Deadline
from resift.rerankers.hosted import transport
from resift.rerankers.hosted.endpoints import check_endpoint, find_key
from resift.rerankers.hosted.providers import status_error, value_at
from resift.types import JsonMapping, JsonValue
from resift.validation import check_arguments, is_finite_number

if TYPE_CHECKING:
    import httpx

# Enough for any error message. An error page may be huge, and callers must not wait for it.
_ERROR_BODY_BYTES = 64 * 1024
_ERROR_BODY_S = 0.1
# A restart of the server may have closed several connections in the pool.
_STALE_RETRIES = 3


class MissingKeyError(errors.ConfigError):
    """A key that the provider requires or the options name is not set."""


class ConnectionOptions(TypedDict, total=False):
    """Options common to all hosted rerankers and chat models.

    The key is `api_key`, or else the content of `api_key_file`, or else of the variable `api_key_env`.
    `allow_loopback` permits plain http to this machine. `max_concurrency` limits the requests in flight.
    """

    api_key: str | None
    api_key_file: str | os.PathLike[str] | None
    api_key_env: str | None
    allow_loopback: bool
    allow_private: bool
    timeout_s: float
    max_concurrency: int


class _StaleConnection(Exception):
    """The server closed a warm connection as a request was sent; the request was not processed."""


class ProviderClient:
    """Posts JSON to one provider and returns JSON, or raises a ProviderError with the reason.

    Connections stay warm per event loop, and all clients of a provider share a concurrency limit. Raises ConfigError
    for an unsafe address, and if a required or named key is missing.
    """

    def __init__(
        self,
        provider: str,
        base_url: str,
        options: ConnectionOptions,
        *,
        message_at: Sequence[str],
        key_env: Sequence[str] = (),
        needs_key: bool = False,
    ) -> None:
        key_variable = options.get("api_key_env")
        variables = (key_variable,) if key_variable else key_env
        self.key = find_key(provider, options.get("api_key"), options.get("api_key_file"), env=variables)
        # An empty variable that the options name is a mistake, even if no key is needed.
        if self.key is None and (needs_key or key_variable):
            names = " or ".join(variables)
            raise MissingKeyError(f"{provider}: no key. Set {names}, or pass api_key= or api_key_file=.")
        loopback, private = options.get("allow_loopback", False), options.get("allow_private", False)
        self.endpoint = check_endpoint(provider, base_url, allow_loopback=loopback, allow_private=private)
        transport.preload(self.endpoint)
        self._httpx = errors.require("httpx", extra="hosted")
        self.timeout_s, max_concurrency = options.get("timeout_s", 10.0), options.get("max_concurrency", 8)
        if not is_finite_number(self.timeout_s) or self.timeout_s <= 0:
            raise errors.ConfigError(f"{provider}: timeout_s is {self.timeout_s!r}; it must be above 0.")
        check_at_least(provider, 1, max_concurrency=max_concurrency)
        self._message_at = tuple(message_at)
        self._limit = transport.shared_limit(provider, self.endpoint.origin, max_concurrency)

    def __repr__(self) -> str:
        return f"ProviderClient({self.endpoint.provider!r}, {self.endpoint.base_url!r})"

    def breaker_key(self, model: str | None) -> tuple[str, str, str, str]:
        """Return provider, base URL, model and an identifier of the key; calls with the same key fail together."""
        return (self.endpoint.provider, self.endpoint.base_url, model or "", self.key.id if self.key else "")

    async def post(self, path: str, payload: object, *, deadline: Deadline) -> JsonValue:
        """Return the parsed body of a 200 response, within the deadline and the client's timeout.

        Raises DeadlineExceeded if time ran out before the request was sent, and ProviderTimeout if it ran out later.
        """
        provider = self.endpoint.provider
        content = transport.dump_body(payload)
        request_deadline = deadline.sooner(self.timeout_s)
        if request_deadline.expired:
            raise errors.DeadlineExceeded(f"No time left to call {provider}.")
        model = payload.get("model") if isinstance(payload, Mapping) else None
        # A wait for our own concurrency limit must not count as a failure of the provider.
        sent = False
        try:
            async with asyncio.timeout(request_deadline.timeout_s), self._limit.permit():
                sent = True
                body = await self._exchange(path, content, model)
            # Responses grow with the request: one row per document, and some repeat the documents.
            return transport.parse_body(body, max_values=20_000 + 16 * transport.count_values(content))
        except transport.UnusableBody as exc:
            message = f"{provider} returned an unusable body: {exc}."
            raise errors.ProviderBadAnswer(message, provider=provider, status=200) from None
        except TimeoutError as exc:
            if isinstance(exc, errors.ProviderError):
                raise
            if not sent:
                raise errors.DeadlineExceeded(f"No connection to {provider} became free in time.") from None
            raise errors.ProviderTimeout(
                f"{provider} did not return a complete response in time.", provider=provider
            ) from None

    async def _exchange(self, path: str, content: bytes, model: str | None) -> bytes:
        for _ in range(_STALE_RETRIES):
            with contextlib.suppress(_StaleConnection):
                return await self._attempt(path, content, model)
        return await self._attempt(path, content, model, stale_is_failure=True)

    async def _attempt(self, path: str, content: bytes, model: str | None, *, stale_is_failure: bool = False) -> bytes:
        httpx = self._httpx
        client = await transport.warm_client(self.endpoint)
        connected = has_response = False

        async def trace(event: str, _info: object) -> None:
            nonlocal connected
            connected = connected or event.startswith("connection.connect")

        try:
            async with client.stream(
                "POST", self.endpoint.url(path), content=content, headers=self._headers(), extensions={"trace": trace}
            ) as response:
                has_response = True
                if response.status_code != 200:
                    raise await self._status_error(response, model)
                encoding = response.headers.get("content-encoding", "").strip().lower()
                body = await transport.read_body(response.aiter_raw(), encoding)
                if await transport.close_if_trailing_data(response):
                    raise transport.UnusableBody("data follows after its end")
                return body
        # Not chained, because a transport error contains the request with the key and the texts.
        except (httpx.TransportError, httpx.StreamError) as exc:
            if has_response and isinstance(exc, httpx.RemoteProtocolError):
                raise transport.UnusableBody("it is incomplete") from None
            # No new connection and no response: the warm connection was dead, and nothing was processed.
            if not (has_response or connected or stale_is_failure):
                raise _StaleConnection from None
            raise self._unreachable(exc) from None

    def _headers(self) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "gzip",  # the only encoding whose decoded size `read_body` can limit
            "User-Agent": "resift",
        }
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key.reveal()}"
        return headers

    async def _status_error(self, response: httpx.Response, model: str | None) -> errors.ProviderError:
        text = ""
        # A 5xx carries no information about the request, and its body may be anything.
        if 400 <= response.status_code < 500:
            encoding = response.headers.get("content-encoding", "")
            # A slow or broken error body counts as an empty message.
            try:
                async with asyncio.timeout(_ERROR_BODY_S):
                    body = await transport.read_body(response.aiter_raw(), encoding, limit=_ERROR_BODY_BYTES)
                value = value_at(transport.parse_body(body), self._message_at)
                text = value if isinstance(value, str) else ""
            except (transport.UnusableBody, TimeoutError, self._httpx.HTTPError):
                text = ""
        return status_error(self.endpoint.provider, response.status_code, response.headers, message=text, model=model)

    def _unreachable(self, exc: Exception) -> errors.ProviderUnreachable:
        provider = self.endpoint.provider
        error = type(exc).__name__
        problem = "No connection to" if "Connect" in error else "Lost the connection to"
        advice = "Check the network and base_url."
        if "SSL" in str(exc):
            advice = "TLS failed: check that base_url is https and that this machine trusts its certificate."
        return errors.ProviderUnreachable(f"{problem} {provider} ({error}). {advice}", provider=provider)


def check_at_least(provider: str, minimum: float, **options: float) -> None:
    """Raise ConfigError unless all options are finite numbers of at least `minimum`."""
    for name, value in options.items():
        if not is_finite_number(value) or value < minimum:
            raise errors.ConfigError(f"{provider}: {name} is {value!r}; it must be at least {minimum:g}.")


# --- Chat: any OpenAI-compatible endpoint, used by the LLM reranker and answer writers ----------------------


class Message(TypedDict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's reply; `finished` is False if it was truncated by the length limit."""

    text: str
    finished: bool = True

    def __repr__(self) -> str:
        return f"Completion({len(self.text)} characters, finished={self.finished})"


class ChatClient:
    """Sends conversations to one model at one OpenAI-compatible endpoint.

    A key is sent only if it is passed or named by `api_key_env`, so that one vendor's key never reaches another
    vendor's address. `body` adds fields to each request; a value of None removes a field.
    """

    @check_arguments
    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        body: JsonMapping | None = None,
        max_tokens: int = 1024,
        temperature: float = 0.0,
        name: str = "chat",
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        if not isinstance(model, str) or not model:
            raise errors.ConfigError(f"{name}: model is {model!r}; pass the name of a model that the endpoint serves.")
        check_at_least(name, 1, max_tokens=max_tokens)
        check_at_least(name, 0, temperature=temperature)
        options: ConnectionOptions = {"timeout_s": 30.0, "max_concurrency": 4, **connection}
        self._client = ProviderClient(name, base_url, options, message_at=("error", "message"))
        self.name = name
        self.model = model
        self._body = {"temperature": temperature, "max_tokens": max_tokens, **(body or {})}

    def __repr__(self) -> str:
        return f"ChatClient({self._client.endpoint.base_url!r}, {self.model!r})"

    @property
    def timeout_s(self) -> float:
        """Maximum time for one request, regardless of the deadline."""
        return self._client.timeout_s

    @property
    def breaker_key(self) -> tuple[str, str, str, str]:
        """Identity of the upstream: calls with the same key fail together."""
        return self._client.breaker_key(self.model)

    async def complete(
        self, messages: Sequence[Message], *, deadline: Deadline, max_tokens: int | None = None
    ) -> Completion:
        """Return the model's reply within the deadline, or raise a ProviderError."""
        fields = {**self._body, **({"max_tokens": max_tokens} if max_tokens else {})}
        payload = {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            "stream": False,
            **{key: value for key, value in fields.items() if value is not None},
        }
        response = await self._client.post("/v1/chat/completions", payload, deadline=deadline)
        try:
            choice = response["choices"][0]
            text = choice["message"]["content"]
        except (TypeError, KeyError, IndexError):
            text = None
        if not isinstance(text, str) or not text.strip():
            raise errors.ProviderBadAnswer(f"{self.name} returned no text.", provider=self.name, status=200)
        return Completion(text, finished=choice.get("finish_reason") != "length")
