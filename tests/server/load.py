"""A load generator with little cost of its own: ready-made bytes on many connections."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field


def request_bytes(path: str, body: object, headers: dict[str, str] | None = None) -> bytes:
    """Return a whole POST request."""
    data = json.dumps(body).encode()
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\n{more}\r\n"
    )
    return head.encode() + data


@dataclass
class Load:
    """What came back: (when it was asked, seconds it took) by status; 0 stands for a lost connection."""

    seconds: float = 0.0
    answers: dict[int, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, status: int, asked_s: float, took_s: float) -> None:
        self.answers.setdefault(status, []).append((asked_s, took_s))

    def count(self, status: int) -> int:
        return len(self.answers.get(status, ()))

    def rate(self, status: int = 200) -> float:
        return self.count(status) / self.seconds if self.seconds else 0.0

    def at(self, share: float, status: int = 200) -> float:
        """Return the time in seconds that this share of the answers took at most."""
        took = sorted(took for _, took in self.answers.get(status, ()))
        return took[min(len(took) - 1, int(share * len(took)))] if took else float("nan")

    def row(self) -> dict[str, object]:
        counts = {str(status): len(found) for status, found in sorted(self.answers.items())}
        return {
            "requests_per_s": round(self.rate(), 1),
            "p50_ms": round(self.at(0.5) * 1000, 1),
            "p95_ms": round(self.at(0.95) * 1000, 1),
            "p99_ms": round(self.at(0.99) * 1000, 1),
            "counts": counts,
        }


class _Client(asyncio.Protocol):
    """One connection: sends a request, hands over each whole answer."""

    def __init__(self) -> None:
        self.waiting: asyncio.Future[int] | None = None
        self.buffer = b""
        self.transport: asyncio.Transport | None = None
        self.retry_after_s = 0.0

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        at = lower.find(b"content-length:")
        size = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(rest) < size:
            return
        at = lower.find(b"retry-after:")
        self.retry_after_s = float(lower[at + 12 :].split(b"\r\n", 1)[0]) if at >= 0 else 0.0
        self.buffer = rest[size:]
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(int(head[9:12]))

    def connection_lost(self, exc):
        self.transport = None
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(0)

    async def ask(self, data: bytes) -> int:
        self.waiting = asyncio.get_running_loop().create_future()
        if self.transport is None:
            return 0
        self.transport.write(data)
        return await self.waiting


async def connect(port: int) -> _Client:
    _, client = await asyncio.get_running_loop().create_connection(_Client, "127.0.0.1", port)
    return client


async def closed_loop(
    port: int, requests: list[bytes], *, connections: int, seconds: float, patient: bool = False
) -> Load:
    """Ask on every connection, again as soon as there is an answer; patient clients obey Retry-After.

    A patient client's time counts from its first attempt to its answer.
    """
    load = Load()
    start = time.perf_counter()

    async def one(number: int) -> None:
        client = await connect(port)
        turn = number
        while time.perf_counter() - start < seconds:
            asked = time.perf_counter()
            status = await client.ask(requests[turn % len(requests)])
            while patient and status == 429:
                await asyncio.sleep(client.retry_after_s)
                status = await client.ask(requests[turn % len(requests)])
            turn += connections
            load.add(status, asked - start, time.perf_counter() - asked)
            if status == 0:
                client = await connect(port)
        if client.transport is not None:
            client.transport.close()

    await asyncio.gather(*(one(number) for number in range(connections)))
    load.seconds = time.perf_counter() - start
    return load


async def open_loop(port: int, requests: list[bytes], *, per_s: float, seconds: float, connections: int = 512) -> Load:
    """Ask at a fixed rate whatever comes back; without a free connection a request is put off."""
    load = Load()
    free: asyncio.Queue[_Client] = asyncio.Queue()
    for client in await asyncio.gather(*(connect(port) for _ in range(connections))):
        free.put_nowait(client)
    start = time.perf_counter()
    asking: set[asyncio.Task[None]] = set()

    async def one(number: int) -> None:
        client = await free.get()
        asked = time.perf_counter()
        status = await client.ask(requests[number % len(requests)])
        load.add(status, asked - start, time.perf_counter() - asked)
        free.put_nowait(await connect(port) if status == 0 else client)

    asked_so_far = 0
    while (now := time.perf_counter() - start) < seconds:
        for number in range(asked_so_far, int(now * per_s)):
            task = asyncio.ensure_future(one(number))
            asking.add(task)
            task.add_done_callback(asking.discard)
        asked_so_far = max(asked_so_far, int(now * per_s))
        await asyncio.sleep(0.002)
    await asyncio.wait(asking, timeout=30) if asking else None
    load.seconds = time.perf_counter() - start
    while not free.empty():
        client = free.get_nowait()
        if client.transport is not None:
            client.transport.close()
    return load
