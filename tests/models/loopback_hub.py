"""A real HTTP server on this machine that behaves, or misbehaves, like the hub."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Hub:
    """Files by path, and what was asked. `behave` may answer a request itself by returning True."""

    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    behave: Callable[[Hub, BaseHTTPRequestHandler, int], bool] | None = None
    ranges: bool = True
    url: str = ""


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Keep the test output clean."""

        def do_GET(self) -> None:
            hub.asked.append((self.path, self.headers.get("Range")))
            if hub.behave and hub.behave(hub, self, len(hub.asked)):
                return
            body = hub.files.get(self.path)
            if body is None:
                answer(self, 404, b"")
                return
            wanted = self.headers.get("Range")
            if wanted and hub.ranges:
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
                if start >= len(body):
                    answer(self, 416, b"")
                    return
                extra = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
                answer(self, 206, body[start:], extra)
            else:
                answer(self, 200, body)

    return Handler


def answer(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None
) -> None:
    """Answer in full and close."""
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), "Connection": "close", **(headers or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)
    handler.close_connection = True


def cut(handler: BaseHTTPRequestHandler, body: bytes, *, after: int, start: int = 0) -> None:
    """Promise the whole body, send a part, hang up."""
    handler.send_response(206 if start else 200)
    handler.send_header("Content-Length", str(len(body) - start))
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
    handler.end_headers()
    handler.wfile.write(body[start : start + after])
    handler.wfile.flush()
    handler.close_connection = True


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Serve until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
