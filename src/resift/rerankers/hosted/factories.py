"""What the names in `resift.rerankers` build: a hosted reranker, or None where there is no key for it."""

from __future__ import annotations

import logging
import os
from typing import Any

from resift._internal.forking import ForkSafeLock
from resift.errors import ConfigError
from resift.rerankers.hosted.dialects import dialect_of
from resift.rerankers.hosted.hosted_options import options_for
from resift.rerankers.hosted.keys import find_key
from resift.rerankers.hosted.scorer import HostedReranker
from resift.validation import check_arguments

ENABLED_VARIABLE = "RESIFT_CROSS_ENCODER_RERANKING_ENABLED"

log = logging.getLogger(__name__)

_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off"})


@check_arguments
def hosted_reranker(
    provider: str, *, cross_encoder_reranking_enabled: bool | None = None, **options: Any
) -> HostedReranker | None:
    """Return the provider's reranker; None when its key is unset or hosted reranking is switched off.

    None is a choice, not a failure: `Tiered(None, fallback)` runs on the fallback and is not degraded.
    """
    dialect = dialect_of(provider)
    if not enabled(cross_encoder_reranking_enabled):
        return None
    named = options.get("api_key_env")
    given = {name: options.get(name) for name in ("api_key", "api_key_file")}
    variables = (named,) if named else dialect.key_env
    key = find_key(provider, env=variables, **given)
    if key is None and (dialect.needs_key or named):
        log.warning("%s: %s is not set; what is built goes without it", provider, " or ".join(variables))
        return None
    return HostedReranker(provider, **options)


_production: HostedReranker | None = None
_production_lock = ForkSafeLock()


def get_production_cross_encoder_reranker(
    *, cross_encoder_reranking_enabled: bool | None = None
) -> HostedReranker | None:
    """Return this process's Voyage reranker, the same object for every caller in every thread.

    All callers then share its limit of concurrent requests and its warm connections. None while
    VOYAGE_API_KEY is not set or hosted reranking is switched off. The key is read when it is first found.
    """
    global _production
    if not enabled(cross_encoder_reranking_enabled):
        return None
    with _production_lock:
        if _production is None:
            _production = hosted_reranker("voyage", cross_encoder_reranking_enabled=True)
        return _production


def enabled(option: bool | None) -> bool:
    """Return the option, else what the environment says, else True."""
    if option is not None:
        return option
    word = os.environ.get(ENABLED_VARIABLE, "").strip().lower()
    if word and word not in _ON | _OFF:
        raise ConfigError(f"{ENABLED_VARIABLE} is {word!r}; write true or false.")
    return word not in _OFF


class HostedFactory:
    """What an entry point of one provider names: builds its reranker, or gives None without a key."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.Options = options_for(dialect_of(provider))

    def __call__(self, **options: Any) -> HostedReranker | None:
        """Return the provider's reranker; None when its key is unset or it is switched off."""
        return hosted_reranker(self.provider, **options)

    def required(
        self, *, cross_encoder_reranking_enabled: bool | None = None, **options: Any
    ) -> HostedReranker:
        """Return the provider's reranker; raises ConfigError that says what is missing."""
        if not enabled(cross_encoder_reranking_enabled):
            raise ConfigError(f"{self.provider} is switched off: {ENABLED_VARIABLE} or its option is false.")
        return HostedReranker(self.provider, **options)


voyage = HostedFactory("voyage")
cohere = HostedFactory("cohere")
cohere_v1 = HostedFactory("cohere-v1")
jina = HostedFactory("jina")
mixedbread = HostedFactory("mixedbread")
tei = HostedFactory("tei")
vllm = HostedFactory("vllm")
infinity = HostedFactory("infinity")
