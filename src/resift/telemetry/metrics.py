"""Events as Prometheus metrics."""

from __future__ import annotations

import weakref
from typing import Any

from resift._internal.forking import ForkSafeLock
from resift.errors import require
from resift.events import Event
from resift.telemetry.labels import labels_of, latency_ms
from resift.types import JsonObject

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_STATES = {"CLOSED": 0, "HALF_OPEN": 1, "OPEN": 2}

_lock = ForkSafeLock()
_made: weakref.WeakKeyDictionary[Any, JsonObject] = weakref.WeakKeyDictionary()


class PrometheusSink:
    """Counts and times events in a registry, by default the one that prometheus_client exports.

    Several sinks on one registry share their metrics. Labels are names and codes, never free text.
    """

    def __init__(self, registry: Any = None) -> None:
        client = require("prometheus_client", extra="telemetry")
        self.registry = client.REGISTRY if registry is None else registry
        with _lock:
            if self.registry not in _made:
                _made[self.registry] = _metrics(client, self.registry)
            self._metrics = _made[self.registry]

    def __call__(self, event: Event) -> None:
        """Count the event."""
        labels = labels_of(event)
        provider, reason = labels.get("provider", ""), labels.get("reason", "")
        self._metrics["events"].labels(event.name, provider, reason).inc()
        elapsed_ms = latency_ms(event)
        if elapsed_ms is not None:
            self._metrics["duration"].labels(event.name, provider).observe(elapsed_ms / 1000)
        if event.name == "circuit_breaker_changed":
            state = self._metrics["breaker"].labels(labels.get("breaker", ""))
            state.set(_STATES.get(labels.get("to_state", ""), -1))
        if event.name == "score_cache":
            fields = event.fields()
            self._metrics["cache"].labels(provider, "hit").inc(fields["hits"])
            self._metrics["cache"].labels(provider, "miss").inc(fields["misses"])
        if labels.get("degraded") == "true":
            self._metrics["degraded"].labels(provider).inc()


def _metrics(client: Any, registry: Any) -> JsonObject:
    counter, gauge = client.Counter, client.Gauge
    return {
        "events": counter(
            "resift_events", "Events by name.", ["event", "provider", "reason"], registry=registry
        ),
        "duration": client.Histogram(
            "resift_duration_seconds",
            "Time of the work behind an event.",
            ["event", "provider"],
            buckets=BUCKETS_S,
            registry=registry,
        ),
        "breaker": gauge(
            "resift_circuit_breaker_state",
            "Last state: 0 closed, 1 half-open, 2 open.",
            ["breaker"],
            registry=registry,
        ),
        "cache": counter(
            "resift_score_cache_lookups", "Scores looked up.", ["provider", "result"], registry=registry
        ),
        "degraded": counter(
            "resift_degraded", "Rankings that were degraded.", ["provider"], registry=registry
        ),
    }
