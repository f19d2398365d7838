"""Sinks that hand events to tracing and metrics. Each is imported on use, with its own extra."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.telemetry.metrics import PrometheusSink as PrometheusSink
    from resift.telemetry.tracing import OpenTelemetrySink as OpenTelemetrySink
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        metrics: PrometheusSink
        tracing: OpenTelemetrySink
        """,
    )
