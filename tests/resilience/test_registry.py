"""Breakers are shared by those who share an upstream, and by nobody else."""

from __future__ import annotations

import logging

from resift.resilience import key_id
from resift.resilience.breaker import BreakerRegistry


def test_same_provider_address_model_and_key_share_a_breaker():
    registry = BreakerRegistry()
    first = registry.for_key("voyage", "https://api.example/v1/", "rerank-2.5", key_id("one"))
    assert registry.for_key("voyage", "https://API.example/v1", "rerank-2.5", key_id("one")) is first
    for other in (
        registry.for_key("cohere", "https://api.example/v1", "rerank-2.5", key_id("one")),
        registry.for_key("voyage", "https://eu.example/v1", "rerank-2.5", key_id("one")),
        registry.for_key("voyage", "https://api.example/v1", "rerank-2", key_id("one")),
        registry.for_key("voyage", "https://api.example/v1", "rerank-2.5", key_id("two")),
    ):
        assert other is not first


def test_later_options_are_reported_and_do_not_replace_the_first(caplog):
    registry = BreakerRegistry()
    first = registry.for_key("voyage", cooldown_s=10.0)
    with caplog.at_level(logging.WARNING, "resift"):
        assert registry.for_key("voyage", cooldown_s=20.0) is first
    assert "already exists" in caplog.text


def test_the_snapshot_shows_every_breaker_and_no_secret():
    registry = BreakerRegistry()
    secret = "sk-canary-123456"
    registry.for_key("voyage", f"https://user:{secret}@api.example/v1?key={secret}", "m", key_id(secret)).force_open()
    (seen,) = registry.snapshot()
    assert (seen["provider"], seen["base_url"], seen["state"]) == ("voyage", "https://api.example/v1", "OPEN")
    assert secret not in repr(seen)
    registry.reset()
    assert registry.snapshot()[0]["state"] == "CLOSED"
    registry.clear()
    assert registry.snapshot() == []
