"""Health, metrics and the API's description. Health never touches a model."""

from __future__ import annotations

from collections.abc import Sequence

from resift.server.api_page import api_page
from resift.server.endpoint import Call, Reply
from resift.server.openapi import Operation, document
from resift.server.schema import mapping, one_of, record, text
from resift.server.serving import Serving

OPEN_PATHS = frozenset({"/livez", "/readyz", "/health", "/ping", "/tei/health"})
"""What needs no key."""

PAGE_HEADERS = {
    "content-security-policy": "frame-ancestors 'none'",  # the page itself says what it may load
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}

_STATE = record({"status": one_of("ok", "starting", "draining", "closed", "failed")}, required=("status",))


def health_operations(serving: Serving) -> list[Operation]:
    """Return the operations of this file."""

    async def live(call: Call) -> Reply:
        return Reply({"status": "ok"})

    async def ready(call: Call) -> Reply:
        if serving.ready:
            return Reply({"status": "ok"})
        return Reply({"status": serving.state}, 503, {"retry-after": "1"})

    async def metrics(call: Call) -> Reply:
        body = serving.metrics.text(serving.admission, ready=serving.ready)
        return Reply(body, media_type="text/plain; version=0.0.4; charset=utf-8")

    def readiness(path: str) -> Operation:
        said = "The models are loaded and the server is not shutting down"
        return Operation(
            serving, f"GET {path}", said, ready, answer=_STATE, statuses={503: _STATE}, needs_key=False
        )

    return [
        Operation(serving, "GET /livez", "The process is alive", live, answer=_STATE, needs_key=False),
        *map(readiness, ("/readyz", "/health", "/ping", "/tei/health")),
        Operation(
            serving,
            "GET /metrics",
            "Counters for Prometheus",
            metrics,
            answer=text(),
            media_type="text/plain",
        ),
    ]


def openapi_operations(serving: Serving, others: Sequence[Operation]) -> list[Operation]:
    """Return the operations that describe all others, and themselves: as data and as a page."""

    async def describe(call: Call) -> Reply:
        return Reply(document([*others, *own]))

    async def page(call: Call) -> Reply:
        body = api_page(document([*others, *own])).encode()
        return Reply(body, headers=PAGE_HEADERS, media_type="text/html; charset=utf-8")

    own = [
        Operation(serving, "GET /openapi.json", "This description", describe, answer=mapping()),
        Operation(
            serving, "GET /docs", "This description as a page", page, answer=text(), media_type="text/html"
        ),
    ]
    return own
