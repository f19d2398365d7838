"""One breaker per upstream and process: clients of the same provider, address, model and key share it."""

from __future__ import annotations

import hashlib
import logging
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from resift._internal.forking import ForkSafeLock
from resift.protocols import Scorer, SharesBreaker, name_of
from resift.resilience.breaker import CircuitBreaker
from resift.types import JsonObject

log = logging.getLogger("resift.resilience")


class BreakerKey(NamedTuple):
    """What makes two calls share their fate."""

    provider: str
    base_url: str
    model: str
    key_id: str


def key_id(key: str | None) -> str:
    """Return a short fingerprint of an API key that is safe to show; empty where there is no key."""
    # Prefixed, so that it equals no plain hash of the key elsewhere.
    return hashlib.sha256(b"resift:" + key.encode()).hexdigest()[:12] if key else ""


class BreakerRegistry:
    """Breakers by key; the first caller's options make the breaker, later ones share it."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._made: dict[BreakerKey, tuple[CircuitBreaker, JsonObject]] = {}

    def for_key(
        self, provider: str, base_url: str = "", model: str = "", key_id: str = "", **options: Any
    ) -> CircuitBreaker:
        """Return the breaker of this upstream, made on first use with these CircuitBreaker options."""
        key = BreakerKey(provider, _bare(base_url), model, key_id)
        with self._lock:
            if key not in self._made:
                named = {"name": provider, **options}
                self._made[key] = (CircuitBreaker(**named), options)
            breaker, first = self._made[key]
        # Not an error: which client is made first is often chance.
        if options != first:
            log.warning("breaker of %s already exists with other options; those stay", provider)
        return breaker

    def for_scorer(self, scorer: Scorer, **options: Any) -> CircuitBreaker:
        """Return the breaker of a scorer's upstream, or a new one where it has none to share."""
        if isinstance(scorer, SharesBreaker):
            return self.for_key(*scorer.breaker_key, **options)
        return CircuitBreaker(name=name_of(scorer), **options)

    def snapshot(self) -> list[JsonObject]:
        """Return the state of every breaker, sorted by key, for operators."""
        with self._lock:
            made = sorted((key, breaker) for key, (breaker, _) in self._made.items())
        return [{**key._asdict(), **breaker.snapshot()} for key, breaker in made]

    def reset(self) -> None:
        """Reset every breaker; clients keep the one they hold."""
        with self._lock:
            made = [breaker for breaker, _ in self._made.values()]
        for breaker in made:
            breaker.reset()

    def clear(self) -> None:
        """Forget all breakers, for tests."""
        with self._lock:
            self._made.clear()


breakers = BreakerRegistry()
"""The registry of this process."""


def _bare(url: str) -> str:
    """Drop user, password, query and fragment: the key of a breaker is shown to operators."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme.lower()}://{host}{parts.path.rstrip('/')}" if host else url.rstrip("/")
