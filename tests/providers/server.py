"""A real HTTP server on loopback that implements the API of every hosted provider, and fails on command.

    with ProviderServer() as server:
        address = server.base_url("voyage")
        reranker = HostedReranker("voyage", base_url=address, api_key="k", allow_loopback=True)
        server.misbehave("stall", times=1)

Requests are checked strictly against the documented fields of each provider.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from resift.errors import InputError, did_you_mean
from resift.types import JsonMapping, JsonObject, JsonValue
from tests.providers.faults import FAULTS, Fault, Reply
from tests.providers.forms import FORMS, Form


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """A received request. Header names are in lower case."""

    provider: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: JsonValue = field(repr=False)
    fault: str | None = None


@dataclass(slots=True)
class _Plan:
    fault: str
    left: float
    when: Callable[[ProviderRequest], bool] | None
    options: JsonMapping


class ProviderServer:
    """Serves `/<provider>/…` for every provider and `/chat/v1/chat/completions`, on a free port.

    With `api_key` set, providers that need a key reject all other keys. `chat` maps the messages of a
    chat request to the content of the response.
    """

    def __init__(self, *, api_key: str | None = None, chat: Callable[[list[JsonObject]], str] | None = None) -> None:
        self.requests: list[ProviderRequest] = []
        self.closing = threading.Event()
        self._api_key = api_key
        self._chat = chat
        self._plans: list[_Plan] = []
        self._lock = threading.Lock()
        self._port = 0
        self._listener: _Listener | None = None

    def __enter__(self) -> ProviderServer:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._close()

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._port}"

    def base_url(self, provider: str) -> str:
        """Return the base URL to configure for a provider."""
        if provider not in FORMS:
            raise InputError(f"Unknown provider {provider!r}. {did_you_mean(provider, FORMS)}")
        return f"{self.url}/{provider}"

    def misbehave(
        self,
        fault: str,
        *,
        times: int | None = None,
        when: Callable[[ProviderRequest], bool] | None = None,
        **options: Any,
    ) -> None:
        """Apply a fault to the next `times` requests (all, if None) for which `when` is true.

        Options: `at` (byte of a reset), `interval_s` (between bytes of a drip), `retry_after`.
        "refuse" rejects all connections until `behave`.
        """
        if fault not in FAULTS:
            raise InputError(f"Unknown fault {fault!r}. {did_you_mean(fault, FAULTS)}")
        with self._lock:
            self._plans.append(_Plan(fault, float("inf") if times is None else times, when, options))
        if fault == "refuse":
            self._close()

    def behave(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._plans.clear()
        self._open()

    def next_fault(self, request: ProviderRequest) -> tuple[str, Fault, JsonMapping] | None:
        """Return the fault to apply to a request, and count it."""
        with self._lock:
            for plan in self._plans:
                if plan.left > 0 and (plan.when is None or plan.when(request)):
                    plan.left -= 1
                    return plan.fault, FAULTS[plan.fault], plan.options
        return None

    def record(self, request: ProviderRequest) -> None:
        """Store a request."""
        with self._lock:
            self.requests.append(request)

    def answer(self, form: Form, body: JsonObject) -> Any:
        """Return the correct response to a valid request."""
        answer = form.answer(body, form.rows(body) if form.documents else ())
        if self._chat is not None and "messages" in body:
            answer["choices"][0]["message"]["content"] = self._chat(body["messages"])
        return answer

    def refuses_key(self, form: Form, authorization: str) -> bool:
        """Return whether the provider would reject this authorization header."""
        key = authorization.removeprefix("Bearer ")
        if not form.bearer and self._api_key is None:
            return False
        return not authorization.startswith("Bearer ") or not key or key != (self._api_key or key)

    def _open(self) -> None:
        if self._listener is None:
            self._listener = _Listener(("127.0.0.1", self._port), _Handler)
            self._listener.owner = self
            self._port = self._listener.server_address[1]
            self._listener.start()

    def _close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    owner: ProviderServer

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.open_connections: set[socket.socket] = set()
        self.broken: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()
        for connection in list(self.open_connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # already closed

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open_connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open_connections.discard(request)
        if request in self.broken:
            # A regular shutdown would send FIN first, and the client would not see a reset.
            self.broken.discard(request)
            request.close()
        else:
            super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Stay silent, because tests disconnect on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def do_POST(self) -> None:
        owner = self.server.owner
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        provider, _, rest = self.path.lstrip("/").partition("/")
        form = FORMS.get(provider)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = ProviderRequest(provider, f"/{rest}", headers, _json(raw))
        fault = owner.next_fault(request)
        owner.record(ProviderRequest(provider, f"/{rest}", headers, request.body, fault[0] if fault else None))
        if form is None or request.path not in form.paths:
            self.send(404, json.dumps({"detail": "Not Found"}).encode())
            return
        problem = self._validate(form, request)
        if problem is not None:
            self.send(problem[0], json.dumps(form.error(problem[1])).encode())
            return
        answer = owner.answer(form, request.body)
        if fault is None:
            self.send(200, json.dumps(answer).encode())
        else:
            fault[1](Reply(answer, form.error, owner.url, fault[2]), self)

    def _validate(self, form: Form, request: ProviderRequest) -> tuple[int, str] | None:
        if self.server.owner.refuses_key(form, request.headers.get("authorization", "")):
            return 401, "invalid api key"
        return form.validate(request.body)

    def head(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        usual = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Date": formatdate(usegmt=True)}
        lines = [f"{name}: {value}" for name, value in {**usual, **(headers or {})}.items()]
        return "\r\n".join([f"HTTP/1.1 {status} Status", *lines, "", ""]).encode("latin-1")

    def send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.raw(self.head(status, body, headers) + body)

    def raw(self, data: bytes) -> None:
        try:
            self.connection.sendall(data)
        except OSError:
            self.close_connection = True  # the client disconnected

    def reset(self) -> None:
        # With a linger time of zero, close() sends RST.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.server.broken.add(self.connection)
        self.close_connection = True

    def close(self) -> None:
        self.close_connection = True

    def pause(self, seconds: float) -> bool:
        step = 0.05
        while seconds > 0 and not self.server.owner.closing.is_set() and not self.close_connection:
            readable, _, _ = select.select([self.connection], [], [], min(step, seconds))
            if readable:
                self.close_connection = True
            seconds -= step
        return not self.server.owner.closing.is_set() and not self.close_connection

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent. Tests read `requests` instead."""


def _json(raw: bytes) -> JsonValue:
    try:
        return json.loads(raw)
    except ValueError:
        return None
