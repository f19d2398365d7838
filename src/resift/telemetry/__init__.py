"""Sinks that export events to OpenTelemetry and Prometheus (extra: telemetry)."""

from __future__ import annotations

import functools
import weakref
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

from resift._internal.forking import ForkSafeLock
from resift.errors import require
from resift.events import Event

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from prometheus_client import CollectorRegistry

LABELS = ("provider", "reason", "degraded", "breaker", "from_state", "to_state", "method", "store", "failed")
"""Event fields that become metric labels. A value that is not a short code becomes "other"."""

MAX_CODE_LENGTH = 40
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_STATES = {"CLOSED": 0, "HALF_OPEN": 1, "OPEN": 2}


class OpenTelemetrySink:
    """Adds each event to the current span, counts it in `resift.events`, and times it in `resift.duration`.

    Uses only the OpenTelemetry API; the application chooses the SDK. Span events have one attribute
    `resift.<field>` per field. Metric attributes contain only names and short codes.
    """

    def __init__(self, *, meter_provider: MeterProvider | None = None) -> None:
        self._trace = require("opentelemetry.trace", extra="telemetry")
        metrics = require("opentelemetry.metrics", extra="telemetry")
        meter = metrics.get_meter("resift", meter_provider=meter_provider)
        self._events = meter.create_counter("resift.events", unit="{event}", description="Events by name")
        self._duration = meter.create_histogram("resift.duration", unit="ms", description="Duration of the work")

    def __call__(self, event: Event) -> None:
        """Record the event."""
        # Only scalar fields are passed on as attributes.
        attributes = {
            f"resift.{key}": value
            for key, value in event.fields().items()
            if isinstance(value, (str, bool, int, float))
        }
        self._trace.get_current_span().add_event(event.name, attributes)
        labels = {"event": event.name, **event_labels(event)}
        self._events.add(1, labels)
        elapsed_ms = latency_ms(event)
        if elapsed_ms is not None:
            self._duration.record(elapsed_ms, labels)


class PrometheusSink:
    """Counts and times events in a registry, by default the global registry of prometheus_client.

    Sinks with the same registry share their metrics. Labels are names and codes, never free text.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        client = require("prometheus_client", extra="telemetry")
        self.registry: CollectorRegistry = client.REGISTRY if registry is None else registry
        with _lock:
            if self.registry not in _metrics:
                _metrics[self.registry] = _create_metrics(client, self.registry)
            self._metrics = _metrics[self.registry]

    def __call__(self, event: Event) -> None:
        """Update the metrics for the event."""
        metrics, labels = self._metrics, event_labels(event)
        provider, reason = labels.get("provider", ""), labels.get("reason", "")
        metrics.events.labels(event.name, provider, reason).inc()
        elapsed_ms = latency_ms(event)
        if elapsed_ms is not None:
            metrics.duration.labels(event.name, provider).observe(elapsed_ms / 1000)
        if event.name == "circuit_breaker_changed":
            state = metrics.breaker.labels(labels.get("breaker", ""))
            state.set(_STATES.get(labels.get("to_state", ""), -1))
        if event.name == "score_cache":
            fields = event.fields()
            metrics.cache.labels(provider, "hit").inc(fields["hits"])
            metrics.cache.labels(provider, "miss").inc(fields["misses"])
        if labels.get("degraded") == "true":
            metrics.degraded.labels(provider).inc()


_lock = ForkSafeLock()
_metrics: weakref.WeakKeyDictionary[CollectorRegistry, SimpleNamespace] = weakref.WeakKeyDictionary()


def _create_metrics(client: ModuleType, registry: CollectorRegistry) -> SimpleNamespace:
    counter = functools.partial(client.Counter, registry=registry)
    duration, states = "Duration of the work that an event reports.", "Last state: 0 closed, 1 half-open, 2 open."
    return SimpleNamespace(
        events=counter("resift_events", "Events by name.", ["event", "provider", "reason"]),
        duration=client.Histogram(
            "resift_duration_seconds", duration, ["event", "provider"], buckets=BUCKETS_S, registry=registry
        ),
        breaker=client.Gauge("resift_circuit_breaker_state", states, ["breaker"], registry=registry),
        cache=counter("resift_score_cache_lookups", "Score cache lookups.", ["provider", "result"]),
        degraded=counter("resift_degraded", "Degraded rankings.", ["provider"]),
    )


def event_labels(event: Event) -> dict[str, str]:
    """Return the metric labels of an event; free text, which would create a time series per message, is "other"."""
    labels = {}
    for key, value in event.fields().items():
        if key in LABELS and value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            is_code = len(text) <= MAX_CODE_LENGTH and not any(character.isspace() for character in text)
            labels[key] = text if is_code else "other"
    return labels


def latency_ms(event: Event) -> float | None:
    """Return the duration that the event reports, or None."""
    for key in ("latency_ms", "ms"):
        value = event.fields().get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None
