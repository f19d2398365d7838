"""A real server in a process of its own, on a free port of this machine."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STUB = "tests.server.stub_server"
START_S = 60


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """A started server; its log grows in `lines`."""

    process: subprocess.Popen[str]
    port: int
    lines: list[str] = field(default_factory=list)
    reader: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            self.lines.extend(stream)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """Send one request on a connection of its own; a body that is no bytes is sent as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, data, {"content-type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.ask("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, None, {name.replace("_", "-"): value for name, value in headers.items()})

    def until(self, true: Any, *, seconds: float = START_S) -> None:
        """Wait until something is true of the server."""
        end = time.monotonic() + seconds
        while not true(self):
            assert time.monotonic() < end, "".join(self.lines[-20:])
            time.sleep(0.02)

    def ready(self) -> bool:
        try:
            return self.get("/readyz").status == 200
        except ConnectionError:
            return False

    def stop(self) -> int:
        """End it as an operator would; return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.reader.join(10)
        return code


def start(
    *words: str,
    module: str = STUB,
    ready: bool = True,
    env: dict[str, str] | None = None,
    folder: Path = ROOT,
    before: Sequence[str] = (),
) -> Server:
    """Start a server on a free port and wait until it is ready.

    `folder` is the checkout that it runs, `before` a command that runs the command of the server.
    """
    import os

    command = [*before, sys.executable, "-m", *([module] if module == STUB else ["resift.cli.main", "serve"])]
    process = subprocess.Popen(
        [*command, "--port", "0", "--drain-delay", "0.1", *words],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    port = re.search(r":(\d+)", first)
    assert port is not None, first + process.stderr.read()
    server = Server(process, int(port[1]))
    if ready:
        server.until(lambda one: one.process.poll() is not None or one.ready())
        if process.poll() is not None:
            server.reader.join(10)
            raise AssertionError("".join(server.lines))
    return server


def real(*words: str, **more: Any) -> Server:
    """Start `resift serve` itself, with the real models."""
    return start(*words, module="resift", **more)
