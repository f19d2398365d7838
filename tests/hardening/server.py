"""The server under bad requests, overload and an end in mid-load: no 500, no lost answer, exit code 0."""

# ruff: noqa: E501 - a row of data reads best on one line
from __future__ import annotations

import asyncio
import importlib.util
import json
import random
from typing import Any

from tests.hardening.report import Outcome

PATHS = (
    "/v1/rerank", "/v2/rerank", "/rerank", "/cohere/v2/rerank", "/jina/v1/rerank", "/voyage/v1/rerank", "/tei/rerank", "/score", "/v1/embeddings",
    "/v1/models", "/v1/search", "/v1/ask", "/v1/explain", "/livez", "/readyz", "/metrics", "/openapi.json", "/", "/nothing", "/v1/rerank/../x", "/%2e%2e", "/v1/rerank?x=1",
)  # fmt: skip
BODIES: tuple[Any, ...] = (
    b"", b"{", b"null", b"[]", b"\xff\xfe", b"[" * 10_000, b"{}", b"9" * 5000, b'{"query": ' + b'"' + b"x" * 2_000_000 + b'"}', {"query": None}, {"query": 3, "documents": "x"},
    {"query": "q", "documents": []}, {"query": "q", "documents": [None]}, {"query": "q", "documents": [1]}, {"query": "q", "documents": ["a"], "top_n": -1},
    {"query": "q", "documents": ["a"], "top_n": "2"}, {"query": "q", "documents": ["a"], "top_n": 1e308}, {"query": "q", "documents": ["a"], "model": 5},
    {"query": "q", "documents": ["a"], "model": "nope"}, {"query": "\ud800", "documents": ["\ud800"]}, {"query": "q", "documents": [{"text": None}]},
    {"query": "q", "documents": ["a"] * 3000}, {"query": "q", "texts": ["a"], "raw_scores": "yes"}, {"query": "", "documents": ["a"]}, {"input": {}}, {"input": ["a"], "dimensions": "x"},
    {"query": "q", "documents": ["a"], "return_documents": {}}, {"query": ["q"], "documents": {"a": 1}}, {"query": "q", "documents": ["ok"], "extra": {"deep": [[[[]]]]}},
)  # fmt: skip
HEADERS: tuple[dict[str, str], ...] = (
    {}, {}, {}, {"content-type": "text/plain"}, {"content-encoding": "gzip"}, {"authorization": "Bearer x"}, {"authorization": ""}, {"x-request-timeout": "nan"}, {"accept": "text/html"},
)  # fmt: skip
SERVED_WITHIN_S = 8.0
"""64 requests are let in at once and cost 0.04 s each, two at a time: 1.3 s where nothing else has to be done."""

METHODS = ("POST", "POST", "POST", "GET", "PUT", "DELETE", "OPTIONS", "HEAD")


def attack(seed: int, count: int) -> Outcome:
    """Send `count` bad requests, then load the server over its limit and end it in the middle."""
    outcome = Outcome("bad requests to the server, then overload and drain")
    if importlib.util.find_spec("uvicorn") is None:
        outcome.absent = "the extra `server` is not installed"
        return outcome
    from tests.server.process import start

    draw = random.Random(seed)
    server = start()
    try:
        for _ in range(count):
            _request(outcome, server, draw)
        outcome.check(server.process.poll() is None, "the server died of a bad request")
        good = server.post("/v1/rerank", {"query": "a", "documents": ["a", "b"]})
        outcome.check(good.status == 200, f"a good request afterwards: {good.status}")
    finally:
        code = server.stop()
    outcome.check(code == 0, f"exit code {code}")
    outcome.check(not any("Traceback" in line for line in server.lines), "a traceback in the log")
    _overload_and_drain(outcome, seconds=2.0 if count < 1000 else 15.0)
    return outcome


def _request(outcome: Outcome, server: Any, draw: random.Random) -> None:
    method, path, body = draw.choice(METHODS), draw.choice(PATHS), draw.choice(BODIES)
    outcome.tried += 1
    try:
        answer = server.ask(method, path, body, draw.choice(HEADERS))
    except Exception as exc:
        outcome.fail(f"{method} {path}: {type(exc).__name__}: {exc} for {body!r:.80}")
        return
    outcome.check(answer.status < 500 or answer.status == 503, f"{method} {path}: {answer.status} for {body!r:.80}")
    is_json = "json" in answer.headers.get("content-type", "")
    if answer.status >= 400 and method != "HEAD" and is_json:
        outcome.check(bool(json.loads(answer.body)), f"{method} {path}: an empty error for {body!r:.80}")


def _overload_and_drain(outcome: Outcome, *, seconds: float) -> None:
    from tests.server.load import closed_loop, request_bytes
    from tests.server.process import start

    body = {"query": "a", "documents": ["cost 0.002"] * 20}
    server = start()

    async def load() -> Any:
        running = asyncio.create_task(
            closed_loop(server.port, [request_bytes("/v1/rerank", body)], connections=128, seconds=seconds)
        )
        return await running

    found = asyncio.run(load())
    counts = {status: len(answers) for status, answers in found.answers.items()}
    outcome.tried += sum(counts.values())
    outcome.check(set(counts) <= {200, 429}, f"under overload: {counts}")
    outcome.check(counts.get(200, 0) > 0, "under overload nobody was served")
    p99_s = found.at(0.99)
    # Whoever is let in is served soon, however often the others, who do not wait as they are told, ask again.
    outcome.check(p99_s <= SERVED_WITHIN_S, f"under overload the admitted waited {p99_s:.1f} s (p99)")
    outcome.figures = {"overload": counts, "p99_ms": p99_s * 1000, "refused_p99_ms": found.at(0.99, 429) * 1000}
    drained = asyncio.run(_drain(server))
    outcome.figures["answers while draining"] = drained
    outcome.check(set(drained) <= {200, 429, 503}, f"in flight when the end came: {drained}")
    code = server.stop()
    outcome.check(code == 0, f"exit code after the drain: {code}")


async def _drain(server: Any) -> dict[int, int]:
    """Ask slow questions, end the server while they are under way, count what they got."""
    import signal

    from tests.server.load import connect, request_bytes

    data = request_bytes("/v1/rerank", {"query": "a", "documents": ["wait 0.5", "a"]})
    clients = [await connect(server.port) for _ in range(8)]
    asked = [asyncio.create_task(client.ask(data)) for client in clients]
    await asyncio.sleep(0.15)
    server.process.send_signal(signal.SIGTERM)
    statuses = await asyncio.wait_for(asyncio.gather(*asked), 30)
    for client in clients:
        if client.transport is not None:
            client.transport.close()
    return {status: statuses.count(status) for status in set(statuses)}
