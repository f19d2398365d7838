"""Query text, document text and keys are in no log, event, metric, exception or repr."""

from __future__ import annotations

import asyncio
import logging
import traceback

import pytest

from resift.deadline import Deadline
from resift.errors import ProviderServerError, ResiftError
from resift.events import ListSink, LogSink
from resift.rerankers.rescore import rescore
from resift.rerankers.score_cache import CachedScorer, MemoryScores
from resift.rerankers.semantic_bm25 import SemanticBM25Reranker
from resift.resilience import Budget, CircuitBreaker, Tiered, breakers, key_id
from resift.types import Hit, Scores

QUERY, TEXT, KEY = "canary-query-7f3a", "canary-text-91bc", "sk-canary-key-55d0"
POOL = [Hit(f"d{number}", f"{TEXT} {number}") for number in range(3)]


class Leaky:
    """A scorer whose own errors quote everything it knows."""

    name = "leaky"
    model = "m"
    pointwise = True

    def __init__(self, error):
        self.error = error

    async def score(self, query, hits, *, deadline):
        if self.error is None:
            return Scores([1.0] * len(hits), self.name)
        raise self.error


class LeakyEmbedder:
    async def embed(self, texts, *, kind):
        raise RuntimeError(f"{QUERY} {texts} {KEY}")


def run(scorer, sink, deadline=None):
    ranking = asyncio.run(rescore(scorer, QUERY, POOL, k=3, sink=sink, deadline=deadline))
    return [ranking.reason, ranking.timings, ranking.unscored, ranking.trace]


@pytest.mark.parametrize(
    "error", [None, RuntimeError(f"{QUERY} {TEXT} {KEY}"), ProviderServerError("leaky answered 500.")]
)
def test_no_secret_leaks(caplog, error):
    prometheus = pytest.importorskip("prometheus_client")
    from resift.telemetry import PrometheusSink

    caplog.set_level(logging.DEBUG)
    heard, registry = ListSink(), prometheus.CollectorRegistry()
    metrics = PrometheusSink(registry)

    def sink(event):
        for each in (heard, LogSink(), metrics):
            each(event)

    breaker = breakers.for_key("leaky", "https://api.example", "m", key_id(KEY), failure_threshold=1)
    breaker.subscribe(sink)
    cached = CachedScorer(Leaky(error), MemoryScores(), sink=sink)
    fallback = SemanticBM25Reranker(embedder=LeakyEmbedder())
    tiered = Tiered(cached, fallback, breaker=breaker, sink=sink)
    seen = [run(tiered, sink), run(tiered, sink), run(tiered, sink, Deadline.after(0.0))]
    seen += [repr(thing) for thing in (tiered, breaker, breakers.snapshot(), cached, fallback, Budget())]
    seen += [event.fields() for event in heard.events] + [repr(event) for event in heard.events]
    seen += [caplog.text, prometheus.generate_latest(registry).decode()]
    breakers.clear()
    told = repr(seen)
    assert heard.events
    assert not [canary for canary in (QUERY, TEXT, KEY) if canary in told]


def test_exceptions_quote_no_documents():
    tiered = Tiered(Leaky(RuntimeError("x")), Leaky(RuntimeError("y")), breaker=CircuitBreaker(1))
    for _ in range(2):
        with pytest.raises(ResiftError) as raised:
            asyncio.run(tiered.score(QUERY, POOL, deadline=Deadline.never()))
        told = "".join(traceback.format_exception(raised.value))
        assert QUERY not in told
        assert TEXT not in told
