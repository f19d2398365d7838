"""Requests that kept 0.2 from answering others: large fusions, half requests, endless headers, long texts."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.hardening.report import Outcome

MAX_PAUSE_MS = 50.0
"""How long a route may keep the event loop from answering /livez."""


def attack(seed: int, count: int) -> Outcome:
    """Send hostile requests in turn while /livez is asked all the time; ten counts are one round."""
    from tests.hardening.overload import late_wakeups
    from tests.server.process import start

    outcome = Outcome("requests that keep a server from answering others")
    draw = random.Random(seed)
    server = start("--any-model", "--max-connections", "300")
    pauses_ms: list[float] = []
    try:
        with late_wakeups() as machine_ms:
            for _ in range(max(1, count // 10)):
                for name, request in large_requests(draw).items():
                    with watch_livez(server.port) as waits_ms:
                        status = server.post(*request).status
                    outcome.tried += 1
                    outcome.check(status in (200, 400, 413), f"{name}: {status}")
                    pauses_ms += waits_ms
                outcome.tried += 2
                closed_s = half_requests(server.port, draw.randint(20, 60))
                outcome.check(closed_s < 5.0, f"half requests were kept for {closed_s:.1f} s")
                status_line = endless_header(server.port, draw.randint(100, 400) << 10)
                outcome.check(b" 431 " in status_line, f"a large header got {status_line!r}")
        outcome.check(server.get("/readyz").status == 200, "the server is not ready afterwards")
    finally:
        outcome.check(server.stop() == 0, "the server did not exit with 0")
    pauses_ms.sort()
    machine = sorted(machine_ms)[int(0.99 * (len(machine_ms) - 1))] if machine_ms else 0.0
    p99 = pauses_ms[int(0.99 * (len(pauses_ms) - 1))]
    outcome.figures = {
        "livez_p99_ms": round(p99, 1),
        "livez_max_ms": round(pauses_ms[-1], 1),
        "machine_ms_p99": round(machine, 1),
    }
    # A connection needs three wake-ups, which a busy machine delays.
    outcome.check(p99 <= MAX_PAUSE_MS + 3 * machine, f"/livez took {p99:.0f} ms")
    return outcome


def attack_overload(seed: int, count: int) -> Outcome:
    """Send five times more rerank requests than the real model can answer, for `count` seconds."""
    import asyncio

    from tests.hardening.overload import WORDS, late_wakeups
    from tests.server.load import closed_loop, open_loop, request_bytes
    from tests.server.process import real

    outcome = Outcome("requests to a server with the real model at five times its capacity")
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(WORDS, k=100)) for _ in range(60)]
    bodies = [{"query": "what governs particles", "documents": draw.sample(texts, 12)} for _ in range(40)]
    requests = [request_bytes("/v2/rerank", body) for body in bodies]
    server = real("--any-model", "--embedder", "none", "--no-access-log")

    async def run() -> tuple[Any, Any, Any]:
        alone_s = max(3, count / 3)
        before = await closed_loop(server.port, requests, connections=1, seconds=alone_s)
        both = await closed_loop(server.port, requests, connections=2, seconds=2)
        rate = 5 * max(before.rate(), both.rate())
        over = await open_loop(server.port, requests, per_s=rate, seconds=count, connections=100)
        return before, over, await closed_loop(server.port, requests, connections=1, seconds=alone_s)

    try:
        with late_wakeups() as machine_ms:
            before, over, after = asyncio.run(run())
    finally:
        outcome.check(server.stop() == 0, "the server did not exit with 0")
    machine = sorted(machine_ms)[int(0.99 * (len(machine_ms) - 1))] if machine_ms else 0.0
    unloaded_ms = 1000 * max(before.at(0.99), after.at(0.99))
    accepted_ms, refused_ms = 1000 * over.at(0.99), 1000 * over.at(0.99, 429)
    outcome.tried = sum(map(len, over.answers.values()))
    outcome.figures = {
        "unloaded_p99_ms": round(unloaded_ms, 1),
        "accepted_p99_ms": round(accepted_ms, 1),
        "refused_p50_ms": round(1000 * over.at(0.5, 429), 1),
        "refused_p99_ms": round(refused_ms, 1),
        "machine_ms_p99": round(machine, 1),
    }
    outcome.check(set(over.answers) <= {200, 429}, f"statuses {sorted(over.answers)}")
    allowed_ms = 3 * unloaded_ms + 3 * machine
    message = f"accepted requests took {accepted_ms:.0f} ms, allowed are {allowed_ms:.0f}"
    outcome.check(accepted_ms <= allowed_ms, message)
    # Of a few refusals the p99 is the worst one, which tells more about the machine.
    judged_ms = refused_ms if over.count(429) >= 300 else 1000 * over.at(0.5, 429)
    outcome.check(judged_ms <= 50 + 3 * machine, f"refusals took {judged_ms:.0f} ms")
    return outcome


def large_requests(draw: random.Random) -> dict[str, tuple[str, Any]]:
    """Return path and body of requests that are expensive in Python, not in a model."""
    size = draw.randint(1_500, 3_000)
    ids = [f"document-{i}" for i in range(size)]
    lists = {f"list-{i}": draw.sample(ids, size) for i in range(6)}
    hits = [{"id": id, "text": "some words", "score": 1.0} for id in ids]
    trace = [
        {"kind": "fuse", "name": "rrf", "ids": ids, "scores": [1.0] * size},
        {
            "kind": "guard",
            "name": "guard",
            "ids": ids[::-1],
            "parts": {"first stage": dict.fromkeys(ids, 0.5)},
        },
    ]
    texts = [f"{draw.random()} the red fox runs over the hill and the whale swims" for _ in range(size)]
    wrong = {"query": "fox", "documents": [*texts, 3]}
    return {
        "fuse and explain": ("/v1/fuse", {"lists": lists, "explain": True}),
        "fuse far too much": ("/v1/fuse", {"lists": {f"{i}": ids for i in range(40)}}),
        "explain": ("/v1/explain", {"ranking": {"hits": hits, "trace": trace}}),
        "search in documents": ("/v1/search", {"query": "red fox", "documents": texts, "explain": True}),
        "ask documents": ("/v1/ask", {"question": "who runs?", "documents": texts}),
        "one wrong document": ("/v1/rerank", wrong),
        "embed": ("/v1/embeddings", {"input": texts}),
    }


@contextmanager
def watch_livez(port: int) -> Iterator[list[float]]:
    """Ask /livez on one connection all the time; the list gets the milliseconds of each answer."""
    waits_ms: list[float] = []
    done = threading.Event()

    def poll() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while not done.is_set():
            started = time.perf_counter()
            connection.request("GET", "/livez")
            connection.getresponse().read()
            waits_ms.append((time.perf_counter() - started) * 1000)
            time.sleep(0.005)
        connection.close()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield waits_ms
    finally:
        done.set()
        thread.join()


def half_requests(port: int, count: int, *, pipelined: bool = False) -> float:
    """Keep connections with half a second request; return the seconds until the last one was closed."""
    first, half = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /livez HTTP/1.1\r\nho"
    sockets = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(count)]
    started = time.monotonic()
    for connection in sockets:
        connection.sendall(first + half if pipelined else first)
    if not pipelined:
        for connection in sockets:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            connection.sendall(half)
    for connection in sockets:
        while connection.recv(4096):
            pass
        connection.close()
    return time.monotonic() - started


def endless_header(port: int, size: int) -> bytes:
    """Send header lines without an end; return the first line of the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        line = b"x-a: " + b"b" * 90 + b"\r\n"
        try:
            connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n")
            for _ in range(size // len(line)):
                connection.sendall(line)
        except ConnectionError:
            pass  # refused before all was sent
        try:
            return connection.recv(4096).split(b"\r\n")[0]
        except ConnectionError:
            return b"HTTP/1.1 431 closed"


def hang_up(port: int, path: str, body: Any, *, after_s: float) -> None:
    """Send a request and close the connection before it is answered."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(head + data)
        time.sleep(after_s)


def seconds(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = time.monotonic()
    work()
    return time.monotonic() - started
