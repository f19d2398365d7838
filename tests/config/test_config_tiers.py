"""Tiers from a file, over real HTTP on loopback: the first tier answers, fails, and is left alone."""

from __future__ import annotations

import asyncio

import pytest

from resift.events import ListSink
from resift.pipeline import Pipeline
from resift.resilience import breakers
from tests.providers import ProviderServer

FILE = """\
stores: [{{name: docs, kind: sqlite, path: docs.db}}]
rerank:
  tiers:
    - {{kind: voyage, base_url: {address}, allow_loopback: true, api_key_env: VOYAGE_API_KEY}}
    - {{kind: semantic-bm25}}
  breaker: {{failure_threshold: 2, cooldown_s: 60}}
deadline_s: 5
"""


def test_exactly_one_tier_scores_and_skips_are_reported(write, monkeypatch):
    """Voyage scores; after two failures its breaker is open and the fallback answers at once."""
    pytest.importorskip("httpx", reason="needs resift[hosted]")
    monkeypatch.setenv("VOYAGE_API_KEY", "not-a-real-key")
    breakers.clear()
    sink = ListSink()

    async def work(server):
        pipe = Pipeline.from_yaml(write(FILE.format(address=server.base_url("voyage"))), sink=sink)
        try:
            healthy = await pipe.search("breaker failures")
            server.misbehave("500", times=2)
            degraded = [await pipe.search("breaker failures") for _ in range(3)]
            return healthy, degraded
        finally:
            await pipe.close()

    with ProviderServer() as server:
        healthy, degraded = asyncio.run(work(server))
        asked = len(server.requests)
    assert (healthy.tier, healthy.degraded, healthy.ids[0]) == ("voyage", False, "d1")
    assert {ranking.tier for ranking in degraded} == {"semantic-bm25"}
    assert all(ranking.degraded and ranking.replay() == ranking.ids for ranking in degraded)
    skipped = [event.reason for event in sink.named("cross_encoder_skipped")]
    assert skipped == ["api_error", "api_error", "circuit_breaker"]
    assert asked == 3
    assert "not-a-real-key" not in repr(sink.events) + repr(degraded)
    breakers.clear()
