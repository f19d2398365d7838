"""Tiers from a file, over real HTTP on loopback: the first tier answers, fails, and is left alone."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from resift.config.rooms import rerank, stores
from resift.events import ListSink
from resift.plugins import RERANKERS, STORES, load_plugin
from resift.resilience import breakers
from resift.retrieval import Pipeline
from resift.testing import ProviderServer

FILE = """\
stores: [{{name: docs, kind: sqlite, path: docs.db}}]
rerank:
  tiers:
    - {{kind: voyage, base_url: {address}, allow_loopback: true, api_key_env: RESIFT_TEST_KEY}}
    - {{kind: semantic-bm25}}
  breaker: {{failure_threshold: 2, cooldown_s: 60}}
deadline_s: 5
"""


def test_t1_t2_exactly_one_tier_scores_and_skips_are_told(write, monkeypatch):
    """T1, T2, T5: voyage scores; after two failures its breaker is open and the fallback answers at once."""
    pytest.importorskip("httpx", reason="needs resift[hosted]")
    monkeypatch.setenv("RESIFT_TEST_KEY", "not-a-real-key")
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


@pytest.mark.parametrize(
    "kind", ["cascade", "cross-encoder", "late-interaction", "zero-shot", "semantic-bm25"]
)
def test_keys_of_a_scorer_are_arguments_of_its_constructor(kind):
    """The table and the constructors cannot drift apart."""
    arguments = set(inspect.signature(load_plugin(RERANKERS, kind)).parameters)
    names = {{"model": "model_name"}.get(key.name, key.name) for key in rerank.SECTION.by_kind[kind]}
    assert names <= arguments


@pytest.mark.parametrize("kind", sorted(stores.SECTION.by_kind))
def test_keys_of_a_store_are_arguments_of_its_constructor(kind):
    """The table and the constructors cannot drift apart."""
    arguments = set(inspect.signature(load_plugin(STORES, kind)).parameters)
    names = {{"api_key_env": "api_key"}.get(key.name, key.name) for key in stores.SECTION.by_kind[kind]}
    assert names <= arguments
