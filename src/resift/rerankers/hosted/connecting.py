"""How a provider is reached: its address, its key, how long and how often at once it is asked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypedDict

from resift.errors import ConfigError
from resift.rerankers.hosted.client import ProviderClient
from resift.rerankers.hosted.endpoint import endpoint
from resift.rerankers.hosted.keys import find_key


class ConnectionOptions(TypedDict, total=False):
    """What every reranker and chat model behind an address takes beside its own options.

    api_key           the key itself; else the first line of `api_key_file`; else the value of the variable
                      that `api_key_env` names
    allow_loopback    also plain http to this machine
    allow_private     also an address in a private network
    timeout_s         longest wait for one request
    max_concurrency   most requests in flight at once
    """

    api_key: str | None
    api_key_file: str | os.PathLike[str] | None
    api_key_env: str | None
    allow_loopback: bool
    allow_private: bool
    timeout_s: float
    max_concurrency: int


def connect(
    provider: str,
    base_url: str,
    options: ConnectionOptions,
    *,
    message_at: Sequence[str],
    key_env: Sequence[str] = (),
    needs_key: bool = False,
) -> ProviderClient:
    """Return the client for an address; `key_env` are the provider's own variables.

    Raises ConfigError for an unsafe address, and where a key is needed or named and there is none.
    """
    named = options.get("api_key_env")
    variables = (named,) if named else key_env
    key = find_key(
        provider,
        api_key=options.get("api_key"),
        api_key_file=options.get("api_key_file"),
        env=variables,
    )
    # A variable that was named and is empty is a mistake, even where no key is needed.
    if key is None and (needs_key or named):
        raise ConfigError(
            f"{provider}: no key. Set {' or '.join(variables)}, or pass api_key= or api_key_file=."
        )
    return ProviderClient(
        endpoint(
            provider,
            base_url,
            allow_loopback=options.get("allow_loopback", False),
            allow_private=options.get("allow_private", False),
        ),
        key,
        timeout_s=options.get("timeout_s", 10.0),
        max_concurrency=options.get("max_concurrency", 8),
        message_at=message_at,
    )
