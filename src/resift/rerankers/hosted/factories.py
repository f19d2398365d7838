"""What the names in `resift.rerankers` build: a hosted reranker, or None where there is no key for it."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from resift.errors import ConfigError
from resift.rerankers.hosted.dialects import dialect_of
from resift.rerankers.hosted.keys import find_key
from resift.rerankers.hosted.scorer import HostedReranker

ENABLED_VARIABLE = "RESIFT_CROSS_ENCODER_RERANKING_ENABLED"

_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off"})


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
    key = find_key(provider, env=(named,) if named else dialect.key_env, **given)
    if key is None and (dialect.needs_key or named):
        return None
    return HostedReranker(provider, **options)


def enabled(option: bool | None) -> bool:
    """Return the option, else what the environment says, else True."""
    if option is not None:
        return option
    word = os.environ.get(ENABLED_VARIABLE, "").strip().lower()
    if word and word not in _ON | _OFF:
        raise ConfigError(f"{ENABLED_VARIABLE} is {word!r}; write true or false.")
    return word not in _OFF


voyage = partial(hosted_reranker, "voyage")
cohere = partial(hosted_reranker, "cohere")
cohere_v1 = partial(hosted_reranker, "cohere-v1")
jina = partial(hosted_reranker, "jina")
mixedbread = partial(hosted_reranker, "mixedbread")
tei = partial(hosted_reranker, "tei")
vllm = partial(hosted_reranker, "vllm")
infinity = partial(hosted_reranker, "infinity")
