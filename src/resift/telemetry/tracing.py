"""Events as OpenTelemetry span events and metrics, through the API alone: the application picks the SDK."""

from __future__ import annotations

from typing import Any

from resift.errors import require
from resift.events import Event
from resift.telemetry.labels import labels_of, latency_ms


class OpenTelemetrySink:
    """Adds each event to the current span, counts it in `resift.events`, and times it in `resift.duration`.

    Span event attributes are the event's fields as `resift.<field>`; metric attributes are codes only.
    """

    def __init__(self, *, meter_provider: Any = None) -> None:
        self._trace = require("opentelemetry.trace", extra="telemetry")
        metrics = require("opentelemetry.metrics", extra="telemetry")
        meter = metrics.get_meter("resift", meter_provider=meter_provider)
        self._events = meter.create_counter("resift.events", unit="{event}", description="Events by name")
        self._duration = meter.create_histogram("resift.duration", unit="ms", description="Time of the work")

    def __call__(self, event: Event) -> None:
        """Record the event."""
        self._trace.get_current_span().add_event(event.name, _attributes(event))
        labels = {"event": event.name, **labels_of(event)}
        self._events.add(1, labels)
        elapsed_ms = latency_ms(event)
        if elapsed_ms is not None:
            self._duration.record(elapsed_ms, labels)


def _attributes(event: Event) -> dict[str, str | bool | int | float]:
    """Return the fields that OpenTelemetry can carry; None and structures are left out."""
    return {
        f"resift.{key}": value
        for key, value in event.fields().items()
        if isinstance(value, (str, bool, int, float))
    }
