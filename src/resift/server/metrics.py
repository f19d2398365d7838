"""What `/metrics` shows: requests, pairs, the queue, refusals, and the events of the library."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from resift.errors import require
from resift.types import JsonObject

if TYPE_CHECKING:
    from resift.server.admission import Admission
    from resift.server.request_info import RequestInfo

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """Counters of one server process; with several workers any of them answers for all."""

    def __init__(self) -> None:
        self._client = require("prometheus_client", extra="server")
        self.registry = self._client.CollectorRegistry()
        made: JsonObject = {"registry": self.registry}
        counter, gauge, histogram = self._client.Counter, self._client.Gauge, self._client.Histogram
        by = ["route", "dialect"]
        self.requests = counter("resift_http_requests", "Requests answered.", [*by, "status"], **made)
        self.seconds = histogram(
            "resift_http_request_seconds", "Time to answer.", by, buckets=SECONDS, **made
        )
        self.pairs = counter("resift_pairs", "Query-document pairs taken on.", ["dialect"], **made)
        self.refusals = counter("resift_refusals", "Requests refused because of load.", **made)
        self.hangups = counter("resift_hangups", "Requests whose client went away.", **made)
        together = {"multiprocess_mode": "livesum", **made}
        self.in_flight = gauge("resift_pairs_in_flight", "Pairs being worked on.", **together)
        self.waiting = gauge("resift_pairs_waiting", "Pairs waiting to be let in.", **together)
        self.ready = gauge("resift_ready", "Workers that are ready.", **together)
        from resift.telemetry.metrics import PrometheusSink

        self.sink = PrometheusSink(self.registry)

    def observe(self, info: RequestInfo, elapsed_s: float) -> None:
        """Count a request that was answered."""
        self.requests.labels(info.route, info.dialect, str(info.status)).inc()
        self.seconds.labels(info.route, info.dialect).observe(elapsed_s)
        if info.pairs:
            self.pairs.labels(info.dialect).inc(info.pairs)

    def text(self, admission: Admission, *, ready: bool) -> bytes:
        """Return the text that Prometheus reads."""
        self.in_flight.set(admission.in_flight)
        self.waiting.set(admission.waiting)
        self.ready.set(int(ready))
        registry = self.registry
        if MULTIPROCESS in os.environ:
            registry = self._client.CollectorRegistry()
            require("prometheus_client.multiprocess", extra="server").MultiProcessCollector(registry)
        body: bytes = self._client.generate_latest(registry)
        return body
