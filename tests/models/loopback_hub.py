"""A real HTTP server on this machine that behaves, or misbehaves, like the hub."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Hub:
    """Files by path, and the GET requests so far. `behave` may answer a GET itself by returning True."""

    revision: str
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    behave: Callable[[Hub, BaseHTTPRequestHandler, int], bool] | None = None
    behave_head: Callable[[Hub, BaseHTTPRequestHandler], bool] | None = None
    url: str = ""

    def add_repository(self, repo: str, folder: Path, *, revision: str = "main") -> None:
        """Serve the files of a folder, and the listing of the repository at a branch or tag."""
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        listing = {"id": repo, "sha": self.revision, "siblings": [{"rfilename": name} for name in names]}
        self.files[f"/api/models/{repo}/revision/{revision}"] = json.dumps(listing).encode()
        for name in names:
            self.files[f"/{repo}/resolve/{self.revision}/{name}"] = (folder / name).read_bytes()


def _make_handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Keep the test output clean."""

        def do_HEAD(self) -> None:
            hub.headers.append({name.lower(): value for name, value in self.headers.items()})
            if hub.behave_head and hub.behave_head(hub, self):
                return
            body = hub.files.get(self.path)
            if body is None:
                answer(self, 404, b"")
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
            self.send_header("X-Repo-Commit", hub.revision)
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True

        def do_GET(self) -> None:
            hub.headers.append({name.lower(): value for name, value in self.headers.items()})
            hub.requests.append((self.path, self.headers.get("Range")))
            if hub.behave and hub.behave(hub, self, len(hub.requests)):
                return
            body = hub.files.get(self.path)
            if body is None:
                answer(self, 404, b"")
                return
            requested = self.headers.get("Range")
            if requested:
                start = int(requested.removeprefix("bytes=").rstrip("-"))
                extra = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
                answer(self, 206, body[start:], extra)
            else:
                answer(self, 200, body)

    return Handler


def answer(handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    """Answer in full and close."""
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), "Connection": "close", **(headers or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)
    handler.close_connection = True


def cut(handler: BaseHTTPRequestHandler, body: bytes, *, after: int) -> None:
    """Promise the whole body, send a part, hang up."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[:after])
    handler.wfile.flush()
    handler.close_connection = True


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Serve until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(hub))
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
