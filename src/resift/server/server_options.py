"""Options of the server: plain values that can be passed to worker processes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from resift.errors import ConfigError
from resift.models.embedder import DEFAULT_EMBEDDER
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.types import JsonMapping
from resift.validation import check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that keep one client from starving the others.

    A pair is a query with a document, or with one window of a long document. A request beyond `max_pairs` waits
    for at most `max_wait_s` and then gets 429.
    """

    max_body_bytes: int = 16 << 20
    max_header_bytes: int = 64 << 10
    max_documents: int = 10_000
    max_text_chars: int = 1_000_000
    max_pairs: int = 2_048  # that are admitted at once
    max_windows: int = 4_096  # size of the texts to embed in one request, in windows of the model
    max_candidates: int = 20_000  # hits to fuse or explain in one request
    max_requests: int = 64  # in progress, with bodies that have been read, because parsing takes time
    max_bytes_held: int = 256 << 20  # of all bodies that are being received, and of all responses not read yet
    max_wait_s: float = 1.0
    max_backlog_s: float = 30.0
    max_connections: int = 2_000
    first_byte_timeout_s: float = 15.0
    header_timeout_s: float = 3.0
    stall_timeout_s: float = 3.0
    body_timeout_s: float = 30.0
    send_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.__slots__:
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be greater than 0.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """All options of a server except its address.

    `aliases` maps model names in requests to served models. `any_model` accepts any name for the default
    model. `strict` rejects unknown fields on the routes that are compatible with other servers. `keys` are
    fixed keys; `key_file` is reloaded whenever it changes. Without keys, a host name with a dot is rejected
    unless it is in `allowed_hosts` ("*" allows all). IP addresses and names without a dot are always allowed.
    """

    model: str = DEFAULT_MODEL
    more_models: tuple[str, ...] = ()
    embedder: str | None = DEFAULT_EMBEDDER
    aliases: Mapping[str, str] = field(default_factory=dict)
    any_model: bool = False
    strict: bool = False
    zero_means_all: bool = False
    stores: tuple[Path, ...] = ()
    pipeline: Path | None = None
    pack: Path | None = None
    judgements: Path | None = None
    key_file: Path | None = None
    key_env: str | None = "RESIFT_API_KEYS"
    keys: tuple[str, ...] = field(default=(), repr=False)
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    playground: bool = True
    access_log: bool = True
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        check_fields(self)
        for origin in self.cors_origins:
            if origin != "*" and not re.fullmatch(r"https?://[^/]+", origin):
                raise ConfigError(f"The origin {origin!r} is not valid; write it like https://page.example.")
        served = [self.model, *self.more_models, *filter(None, [self.embedder])]
        for alias, model in self.aliases.items():
            if model not in served:
                names = ", ".join(served)
                raise ConfigError(f"The alias {alias!r} refers to {model!r}, which is not served. Served: {names}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """Address, number of processes, and shutdown times. `tls` contains uvicorn's ssl options."""

    host: str = "127.0.0.1"
    port: int = 8787
    workers: int = 1
    drain_delay_s: float = 2.0
    drain_s: float = 20.0
    tls: JsonMapping = field(default_factory=dict)
