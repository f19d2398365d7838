"""Sinks for OpenTelemetry and Prometheus, against the real libraries."""

from __future__ import annotations

import sys

import pytest

from resift.errors import MissingExtraError
from resift.events import Reranked, emit
from resift.rerankers.score_cache import ScoreCacheUsed
from resift.resilience.breaker import CircuitBreakerChanged
from resift.resilience.tiered import CrossEncoderSkipped

SKIPPED = CrossEncoderSkipped(
    provider="voyage", reason="budget", candidates=9, error=None, remaining_ms=None, latency_ms=2.0
)
OPENED = CircuitBreakerChanged(
    breaker="voyage", from_state="CLOSED", to_state="OPEN", reason="timeout", open_for_s=60.0
)
RERANKED = Reranked(
    provider="semantic-bm25",
    candidates=9,
    unscored=0,
    kept=3,
    latency_ms=2.5,
    degraded=True,
    reason="budget: voyage needs 2.50 s and 0.10 s are left",
)
CACHE = ScoreCacheUsed(provider="voyage", hits=7, misses=2, failed=False)


@pytest.fixture
def registry():
    return pytest.importorskip("prometheus_client").CollectorRegistry()


def test_prometheus_has_counts_durations_and_breaker_states(registry):
    from resift.telemetry import PrometheusSink

    sinks = [PrometheusSink(registry), PrometheusSink(registry)]
    for event in (SKIPPED, OPENED, RERANKED, CACHE):
        for sink in sinks:
            sink(event)
    value = registry.get_sample_value
    skipped = {"event": "cross_encoder_skipped", "provider": "voyage", "reason": "budget"}
    assert value("resift_events_total", skipped) == 2
    assert value("resift_circuit_breaker_state", {"breaker": "voyage"}) == 2
    assert value("resift_score_cache_lookups_total", {"provider": "voyage", "result": "hit"}) == 14
    assert value("resift_score_cache_lookups_total", {"provider": "voyage", "result": "miss"}) == 4
    assert value("resift_degraded_total", {"provider": "semantic-bm25"}) == 2
    timed = {"event": "reranked", "provider": "semantic-bm25"}
    assert value("resift_duration_seconds_sum", timed) == pytest.approx(0.005)


def test_a_sentence_never_becomes_a_label(registry):
    from prometheus_client import generate_latest

    from resift.telemetry import PrometheusSink

    PrometheusSink(registry)(RERANKED)
    page = generate_latest(registry).decode()
    assert "needs 2.50" not in page
    assert 'reason="other"' in page


def test_opentelemetry_gets_span_events_and_metrics():
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider

    from resift.telemetry import OpenTelemetrySink

    reader = InMemoryMetricReader()
    meters = MeterProvider(metric_readers=[reader])
    sink = OpenTelemetrySink(meter_provider=meters)
    with TracerProvider().get_tracer("test").start_as_current_span("request") as span:
        sink(SKIPPED)
        sink(RERANKED)
    first, second = span.events
    assert first.name == "cross_encoder_skipped"
    assert dict(first.attributes) == {
        "resift.provider": "voyage",
        "resift.reason": "budget",
        "resift.candidates": 9,
        "resift.latency_ms": 2.0,
    }
    assert second.attributes["resift.degraded"] is True
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    points = {metric.name: metric.data.data_points for metric in scope.metrics}
    assert {dict(point.attributes)["event"] for point in points["resift.events"]} == {
        "cross_encoder_skipped",
        "reranked",
    }
    assert sum(point.sum for point in points["resift.duration"]) == pytest.approx(4.5)
    meters.shutdown()


def test_without_a_span_or_an_sdk_nothing_happens():
    pytest.importorskip("opentelemetry.trace")
    from resift.telemetry import OpenTelemetrySink

    emit(OpenTelemetrySink(), SKIPPED)


@pytest.mark.parametrize(
    ("module", "home", "sink"),
    [
        ("prometheus_client", "resift.telemetry", "PrometheusSink"),
        ("opentelemetry.trace", "resift.telemetry", "OpenTelemetrySink"),
    ],
)
def test_the_error_for_a_missing_package_has_the_install_command(monkeypatch, module, home, sink):
    import importlib

    made = getattr(importlib.import_module(home), sink)
    for name in [name for name in sys.modules if name.partition(".")[0] == module.partition(".")[0]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    with pytest.raises(MissingExtraError, match=r"pip install (-e )?'(resift|\.)\[telemetry\]'"):
        made()
