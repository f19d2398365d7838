"""Faults of a provider. Each is a small function that writes a wrong response."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Protocol

from resift.types import JsonMapping, JsonValue

MIB = 1024 * 1024


class Wire(Protocol):
    """The server's end of one connection."""

    def send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Write a complete response. The given headers override the default ones."""

    def head(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        """Return the status line and headers of a response as bytes."""

    def raw(self, data: bytes) -> None:
        """Write bytes unchanged."""

    def reset(self) -> None:
        """Break the connection so that the client sees a reset."""

    def close(self) -> None:
        """Close the connection normally."""

    def pause(self, seconds: float) -> bool:
        """Wait, and return False if the client or the server closed the connection meanwhile."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The correct response, which a fault corrupts, and the options of `misbehave`."""

    answer: JsonValue
    error: Callable[[str], JsonValue]
    url: str
    options: JsonMapping = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """The correct response as bytes."""
        return json.dumps(self.answer).encode()

    def rows(self) -> list[JsonValue]:
        """Return the rows of the response, for a fault to change in place."""
        if isinstance(self.answer, list):
            return self.answer
        for key in ("results", "data", "choices"):
            if key in self.answer:
                rows: list[JsonValue] = self.answer[key]
                return rows
        return []


Fault = Callable[[Reply, Wire], None]


def _reset(reply: Reply, wire: Wire) -> None:
    response = wire.head(200, reply.body) + reply.body
    wire.raw(response[: reply.options.get("at", 0)])
    wire.reset()


def _stall(reply: Reply, wire: Wire) -> None:
    while wire.pause(1.0):
        pass


def _stall_midway(reply: Reply, wire: Wire) -> None:
    wire.raw(wire.head(200, reply.body) + reply.body[: len(reply.body) // 2])
    _stall(reply, wire)


def _drip(reply: Reply, wire: Wire) -> None:
    wire.raw(wire.head(200, reply.body))
    for byte in reply.body:
        wire.raw(bytes([byte]))
        if not wire.pause(reply.options.get("interval_s", 1.0)):
            return


def _early_close(reply: Reply, wire: Wire) -> None:
    wire.raw(wire.head(200, reply.body) + reply.body[: len(reply.body) // 2])
    wire.close()


def _no_answer(reply: Reply, wire: Wire) -> None:
    wire.close()


def _length(reply: Reply, wire: Wire, *, factor: float) -> None:
    wire.send(200, reply.body, {"Content-Length": str(int(len(reply.body) * factor))})
    wire.close()


def _two_answers(reply: Reply, wire: Wire) -> None:
    wire.raw(2 * (wire.head(200, reply.body) + reply.body))


def _gzip_bomb(reply: Reply, wire: Wire) -> None:
    wire.send(200, bomb(), {"Content-Encoding": "gzip"})


def _broken_gzip(reply: Reply, wire: Wire) -> None:
    wire.send(200, gzip.compress(reply.body)[:-10], {"Content-Encoding": "gzip"})


def _huge(reply: Reply, wire: Wire) -> None:
    # White space is valid JSON: only a size limit rejects this response.
    wire.send(200, b" " * (9 * MIB) + reply.body)


def _body(reply: Reply, wire: Wire, *, body: bytes, kind: str = "application/json") -> None:
    wire.send(200, body, {"Content-Type": kind})


def _dense_json(reply: Reply, wire: Wire) -> None:
    # Just under 8 MiB, and seconds of work for a JSON parser.
    wire.send(200, b"[" + b"[]," * 2_700_000 + b"[]]")


def _half_json(reply: Reply, wire: Wire) -> None:
    wire.send(200, reply.body[: len(reply.body) // 2])


def _score(reply: Reply, wire: Wire, *, value: object) -> None:
    for row in reply.rows()[:1]:
        for key in ("relevance_score", "score", "message"):
            if key in row:
                row[key] = value
    wire.send(200, reply.body)


def _index(reply: Reply, wire: Wire, *, value: object) -> None:
    for row in reply.rows()[:1]:
        row["index"] = value
        row.pop("message", None)
    wire.send(200, reply.body)


def _duplicate_index(reply: Reply, wire: Wire) -> None:
    rows = reply.rows()
    rows[0]["index"] = rows[-1]["index"] if len(rows) > 1 else 1
    rows[0].pop("message", None)
    wire.send(200, reply.body)


def _missing_row(reply: Reply, wire: Wire) -> None:
    reply.rows().pop()
    wire.send(200, reply.body)


def _extra_row(reply: Reply, wire: Wire) -> None:
    rows = reply.rows()
    rows.insert(0, {**rows[0], "index": len(rows)})
    rows[0].pop("message", None)
    wire.send(200, reply.body)


def _status(reply: Reply, wire: Wire, *, status: int, wait: bool = False) -> None:
    headers = {"Retry-After": str(reply.options.get("retry_after", 7))} if wait else {}
    wire.send(status, json.dumps(reply.error(f"status {status} on command")).encode(), headers)


def _redirect(reply: Reply, wire: Wire) -> None:
    wire.send(307, b"", {"Location": f"{reply.url}/followed"})


def _refuse(reply: Reply, wire: Wire) -> None:
    wire.reset()  # for connections that were already open


@cache
def bomb() -> bytes:
    """Return about one MiB of gzip data that expands to one GiB of white space."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    first = packer.compress(b" " * MIB) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush no block refers back, so the same block can be repeated.
    again = packer.compress(b" " * MIB) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + again * 1023 + packer.flush(zlib.Z_FINISH)


_HTML = b"<!doctype html><html><body><h1>Please log in</h1></body></html>"

FAULTS: Mapping[str, Fault] = {
    "refuse": _refuse,
    "reset": _reset,
    "stall": _stall,
    "stall-midway": _stall_midway,
    "drip": _drip,
    "no-answer": _no_answer,
    "early-close": _early_close,
    "length-too-long": partial(_length, factor=2.0),
    "length-too-short": partial(_length, factor=0.5),
    "two-answers": _two_answers,
    "gzip-bomb": _gzip_bomb,
    "broken-gzip": _broken_gzip,
    "huge": _huge,
    "html": partial(_body, body=_HTML, kind="text/html"),
    "empty": partial(_body, body=b""),
    "half-json": _half_json,
    "deep-json": partial(_body, body=b"[" * 200_000),
    "dense-json": _dense_json,
    "wrong-shape": partial(_body, body=b'{"ok": true}'),
    "nan": partial(_score, value=float("nan")),
    "infinite": partial(_score, value=float("inf")),
    "string-score": partial(_score, value="0.9"),
    "null-score": partial(_score, value=None),
    "duplicate-index": _duplicate_index,
    "negative-index": partial(_index, value=-1),
    "large-index": partial(_index, value=100_000),
    "string-index": partial(_index, value="0"),
    "bool-index": partial(_index, value=True),
    "missing-row": _missing_row,
    "extra-row": _extra_row,
    "400": partial(_status, status=400),
    "401": partial(_status, status=401),
    "403": partial(_status, status=403),
    "404": partial(_status, status=404),
    "408": partial(_status, status=408),
    "413": partial(_status, status=413),
    "422": partial(_status, status=422),
    "429": partial(_status, status=429),
    "429-retry-after": partial(_status, status=429, wait=True),
    "500": partial(_status, status=500),
    "502": partial(_status, status=502),
    "503": partial(_status, status=503),
    "503-retry-after": partial(_status, status=503, wait=True),
    "redirect": _redirect,
}
"""Name -> fault, for `ProviderServer.misbehave`."""
