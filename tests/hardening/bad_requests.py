"""Requests that are wrong in every way that came to mind, and what a server made of them."""

from __future__ import annotations

import json
import random
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

HANG_S = 5.0
PATHS = (
    "/v2/rerank", "/v1/rerank", "/rerank", "/", "/cohere/v1/rerank", "/jina/v1/rerank", "/voyage/v1/rerank",
    "/tei/rerank", "/vllm/rerank", "/infinity/rerank", "/score", "/v1/embeddings", "/embed", "/v1/search",
    "/v1/ask", "/v1/fuse", "/v1/explain", "/v1/judge/sessions", "/v1/judge/ratings",
)  # fmt: skip

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, 1e308, -1e308, 10**400, "", " ", "\0", "a\0b", "\ud800", "\udfff\ud800",
    "é" * 300, "\u202e", "[SEP]", "x" * 5000, [], [[]], [None], [1], {}, {"text": None}, {"text": {"a": "x"}},
    "true", "NaN",
)  # fmt: skip
FIELDS = (
    "query", "documents", "texts", "model", "top_n", "top_k", "return_documents", "raw_scores", "truncation",
    "rank_fields", "relevant_spans", "deadline_ms", "input", "inputs", "dimensions", "encoding_format",
    "lists", "method", "ranking", "settings", "where", "k", "explain", "queries", "text_1", "text_2",
    "question", "session", "id", "grade", "blind", "weight",
)  # fmt: skip


def storm(port: int, count: int, *, threads: int = 32) -> dict[str, Any]:
    """Send that many bad requests and return statuses, the longest wait and what went wrong."""
    statuses: Counter[str] = Counter()
    waits: list[float] = []
    failures: list[str] = []

    def send(number: int) -> None:
        seed = random.Random(number)
        data = _request(seed)
        begun = time.perf_counter()
        status = _answer(port, data)
        waits.append(time.perf_counter() - begun)
        statuses[status] += 1
        if status.startswith("5") or status == "hang":
            failures.append(repr(data[:300]))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(send, range(count)))
    return {
        "requests": count,
        "statuses": dict(sorted(statuses.items())),
        "longest_s": round(max(waits), 2),
        "failures": failures[:5],
    }


def _request(seed: random.Random) -> bytes:
    return seed.choice((_wrong_fields, _wrong_fields, _broken_json, _deep, _duplicate_keys, _lying, _no_http))(seed)


def _wrong_fields(seed: random.Random) -> bytes:
    body: dict[str, Any] = {"query": "q", "documents": ["a", "b"], "texts": ["a"], "input": "x", "lists": [["a"]]}
    for field in seed.sample(FIELDS, seed.randint(1, 4)):
        value = seed.choice(VALUES)
        body[field] = seed.choice((value, [value], [value] * 40, {"text": value}, {str(value)[:20]: value}))
    for field in seed.sample(sorted(body), seed.randint(0, 2)):
        del body[field]
    return _posted(seed, json.dumps(body).encode())


def _broken_json(seed: random.Random) -> bytes:
    body = bytearray(json.dumps({"query": "q", "documents": ["a" * 30] * 3}).encode())
    for _ in range(seed.randint(1, 5)):
        body[seed.randrange(len(body))] = seed.randrange(256)
    return _posted(seed, bytes(body[: seed.randint(0, len(body))]))


def _deep(seed: random.Random) -> bytes:
    depth = seed.choice((100, 1_000, 10_000, 100_000))
    opening, closing = seed.choice((("[", "]"), ('{"a":', "}")))
    middle = opening * depth + "1" + closing * depth
    return _posted(seed, f'{{"query":"q","documents":{middle}}}'.encode())


def _duplicate_keys(seed: random.Random) -> bytes:
    many = seed.choice((2, 50, 5_000))
    return _posted(seed, ("{" + '"query":"q","documents":["a"],' * many + '"query":1e999}').encode())


def _lying(seed: random.Random) -> bytes:
    body = b'{"query":"q","documents":["a"]}'
    head = f"POST {seed.choice(PATHS)} HTTP/1.1\r\nhost: x\r\n".encode()
    lies = (
        b"content-length: 5\r\n\r\n" + body,
        b"content-length: -1\r\n\r\n" + body,
        b"content-length: 99999999999999999999\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\nzz\r\n" + body,
        b"transfer-encoding: chunked\r\n\r\nffffffffff\r\n" + body,
        b"transfer-encoding: chunked\r\ncontent-length: 31\r\n\r\n1f\r\n" + body + b"\r\n0\r\n\r\n",
        b"content-length: 31\r\ncontent-length: 30\r\n\r\n" + body,
        b"content-encoding: gzip\r\ncontent-length: 31\r\n\r\n" + body,
        b"x: " + b"y" * 100_000 + b"\r\n\r\n",
    )
    return head + seed.choice(lies)


def _no_http(seed: random.Random) -> bytes:
    return seed.choice(
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + seed.randbytes(60),
            b"GET / HTTP/9.9\r\n\r\n",
            b"POST\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET /%00%ff/../../etc/passwd HTTP/1.1\r\nhost: x\r\n\r\n",
            b"GET /openapi.json HTTP/1.1\r\nhost: \x00\r\n\r\n",
            b"DELETE /v2/rerank HTTP/1.1\r\nhost: x\r\n\r\n",
            b"GET " + b"/a" * 40_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
            seed.randbytes(200) + b"\r\n\r\n",
        )
    )


def _posted(seed: random.Random, body: bytes) -> bytes:
    path = seed.choice(PATHS)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _answer(port: int, data: bytes) -> str:
    """Return the status, "closed" where the server hung up, or "hang" where it did neither in time."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as connection:
            connection.sendall(data)
            answer = connection.recv(65536)
            return answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "closed"
    except TimeoutError:
        return "hang"
    except OSError:
        return "closed"
