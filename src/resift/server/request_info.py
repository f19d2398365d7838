"""What is known of a request while it is handled, for logs, metrics and headers. Never its texts."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from resift.types import JsonMapping

_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
KEY = "resift.request"
_PROCESS = os.urandom(10).hex()
_numbers = itertools.count(1)


@dataclass(slots=True)
class RequestInfo:
    """One request's facts; endpoints fill them in."""

    id: str
    headers: Mapping[str, str]
    body_bytes: int | None = None
    counted: bool = False
    route: str = "unknown"
    dialect: str = ""
    pairs: int = 0
    documents: int = 0
    status: int = 0
    tier: str = ""
    degraded: str = ""
    note: str = ""
    answer_headers: dict[str, str] = field(default_factory=dict)


def new_id() -> str:
    """Return an id that no other request has: this process, then a number. Cheaper than asking for chance."""
    return f"{_PROCESS}{next(_numbers):012x}"


def info_of(scope: JsonMapping) -> RequestInfo:
    """Return the facts of a request, made anew where no middleware did."""
    found = scope.get(KEY)
    return found if isinstance(found, RequestInfo) else new_info(scope)


def new_info(scope: JsonMapping) -> RequestInfo:
    """Return the facts of a request that just came in; a client's own id is kept if it is harmless."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", ())}
    given = headers.get("x-request-id", "")
    length = headers.get("content-length", "")[:19]
    body_bytes = int(length) if length.isdecimal() else None
    return RequestInfo(given if _ID.fullmatch(given) else new_id(), headers, body_bytes)


def header_safe(value: str) -> str:
    """Return a text that fits into a header: printable ASCII, not too long."""
    plain = "".join(char if " " <= char <= "~" else "?" for char in value.replace("\n", " "))
    return plain[:300]
