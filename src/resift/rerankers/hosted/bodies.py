"""Bytes of an answer: read with a cap that holds after decompression, and parsed without surprises."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NoReturn

from resift.types import JsonValue

if TYPE_CHECKING:
    import httpx

MAX_BODY = 8 * 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS
# httpx response -> httpcore connection -> h11 state. Not public in httpx, so a test watches over it.
_CHAIN = ("stream", "_stream", "_httpcore_stream", "_stream", "_connection", "_h11_state")


class UnusableBody(Exception):
    """A body that cannot be believed; the message never quotes it."""


async def read_capped(chunks: AsyncIterator[bytes], encoding: str, *, cap: int = MAX_BODY) -> bytes:
    """Return the decoded body, stopping as soon as it grows over the cap."""
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise UnusableBody("it is compressed in a way that was not asked for")
    unzip = zlib.decompressobj(_GZIP) if encoding in ("gzip", "x-gzip") else None
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        # max_length: a kilobyte of gzip can hold a megabyte, so the cap must act inside zlib.
        part = chunk if unzip is None else _inflated(unzip, chunk, cap + 1 - size)
        size += len(part)
        if size > cap:
            raise UnusableBody(f"it is longer than {cap // 1024} KiB")
        parts.append(part)
    if unzip is not None and not (unzip.eof and not unzip.unused_data):
        raise UnusableBody("its gzip stream is cut short or has something after its end")
    return b"".join(parts)


def parts_in(body: bytes) -> int:
    """Return at most how many values a JSON text has: what parsing it costs, known without parsing."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def parse_json(body: bytes, *, most_parts: int = 20_000) -> JsonValue:
    """Return the JSON value of a body; NaN and Infinity, which are not JSON, are refused.

    Eight mebibytes of `[],[],` take seconds to parse and stop the whole event loop meanwhile, so a
    body of more than `most_parts` values is not parsed at all.
    """
    if not body.strip():
        raise UnusableBody("it is empty")
    if parts_in(body) > most_parts:
        raise UnusableBody("it has far more parts than were asked for")
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        # Not chained: these exceptions carry the whole body.
        what = "an HTML page" if body.lstrip()[:1] == b"<" else "not JSON"
        raise UnusableBody(f"it is {what}") from None


def dump_json(value: object) -> bytes:
    """Return the body of a request; lone surrogates, which no server can decode, become question marks."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


def _inflated(unzip: Any, chunk: bytes, room: int) -> bytes:
    try:
        part: bytes = unzip.decompress(chunk, room)
    except zlib.error:
        raise UnusableBody("its gzip stream is broken") from None
    return part


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


async def close_if_trailing_data(response: httpx.Response) -> bool:
    """Close the connection of a fully read response if more than the answer came; say whether it did.

    Kept on a warm connection, those bytes would answer the next query.
    """
    state: object = response
    for name in _CHAIN:
        state = getattr(state, name, None)
    more, _ended = getattr(state, "trailing_data", (b"", False))
    if more:
        await response.extensions["network_stream"].aclose()
    return bool(more)
