"""Bytes of a request to a JSON value and back, within limits and without surprises."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NoReturn

from resift.server.asgi import Receive
from resift.server.failures import RequestFailed
from resift.types import JsonObject, JsonValue

MOST_PARTS = 400_000
"""Values in one body. Sixteen mebibytes of `[],[],` would stop the event loop for seconds."""


class ClientGone(Exception):
    """The client hung up before its request was complete."""


async def read_body(
    receive: Receive,
    headers: Mapping[str, str],
    *,
    limit: int,
    note: Callable[[int], None] = lambda size: None,
) -> bytes:
    """Return the whole body, refusing it as soon as it is known to be over the limit.

    `note` is called with the size of each part, and may refuse too.
    """
    # A small compressed body can unpack to gigabytes, and no rerank client sends one.
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise RequestFailed("invalid", "The body is compressed; send it plain")
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:19]) > limit:
        raise _too_long(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        note(len(part))
        if size > limit:
            raise _too_long(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def parse_json(body: bytes, *, unique_keys: bool = False) -> JsonValue:
    """Return the JSON value of a body: UTF-8, no NaN, no endless nesting; lone surrogates are replaced."""
    if not body.strip():
        raise RequestFailed("invalid", "The body is empty; send JSON")
    # Counting takes longer than parsing a small body, which cannot hold so many.
    if len(body) > MOST_PARTS and sum(body.count(mark) for mark in (b",", b"[", b"{")) > MOST_PARTS:
        raise RequestFailed("too_large", f"The body has more than {MOST_PARTS} values")
    try:
        # With or without the byte order mark that some editors and clients put first.
        decoded = body.decode("utf-8-sig")
        hook = _refuse_twins if unique_keys else None
        value = json.loads(decoded, parse_constant=_refuse, object_pairs_hook=hook)
    except RequestFailed:
        raise
    except UnicodeDecodeError:
        raise RequestFailed("invalid", "The body is not UTF-8") from None
    except RecursionError:
        raise RequestFailed("invalid", "The body is nested too deeply") from None
    except ValueError as exc:
        where = f" at character {exc.pos}" if isinstance(exc, json.JSONDecodeError) else ""
        # Not chained: these exceptions carry the whole body.
        raise RequestFailed("invalid", f"The body is not JSON{where}") from None
    # An escaped surrogate is the only way to a string that no encoder takes.
    return _encodable(value) if b"\\ud" in body or b"\\uD" in body else value


def dump_json(value: object) -> bytes:
    """Return the body of an answer."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(
        "utf-8", "replace"
    )


def _too_long(limit: int) -> RequestFailed:
    return RequestFailed("too_large", f"The body is longer than {limit} bytes")


def _refuse(constant: str) -> NoReturn:
    raise RequestFailed("invalid", f"{constant} is not JSON")


def _refuse_twins(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RequestFailed("invalid", "The body has a key twice")
    return found


def _encodable(value: object) -> JsonValue:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return value
