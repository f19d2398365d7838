"""What a pipeline file can say of a hosted reranker or a chat endpoint, and where its key may go."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from resift._internal.environment import ALLOWED_VARIABLES, is_allowed
from resift.rerankers.hosted.addresses import reach_of
from resift.rerankers.hosted.dialects import Dialect
from resift.validation import Options, option

_KEY_HELP = "Environment variable that holds the key, if not the provider's own. Unset means: skip this tier."


@dataclass(frozen=True, kw_only=True)
class EndpointOptions(Options):
    """Key and connection of a service; subclasses have `base_url`."""

    key_hosts: ClassVar[Mapping[str, str]] = {}
    """Variables whose keys belong to one host: they are sent to it alone."""

    api_key_env: str | None = option(_KEY_HELP, default=None, kind="variable")
    api_key_file: str | None = option(
        "File that holds the key, beside the pipeline file.", default=None, kind="key file", must_exist=True
    )
    allow_loopback: bool = option("Allow plain http to this machine.", default=False)
    allow_private: bool = option("Allow an address in a private network.", default=False)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield an address that would get the key of another."""
        address = getattr(self, "base_url", None)
        if address is None or self.api_key_file is not None:
            return
        asked = urlsplit(address).hostname or ""
        for variable in (self.api_key_env,) if self.api_key_env else self.key_hosts:
            own = self.key_hosts.get(variable, asked)
            if asked != own and reach_of(asked) != "loopback" and not is_allowed(variable):
                yield (
                    "base_url",
                    f".base_url would send the key of {own} to {asked}. If it is meant, allow its variable "
                    f"outside the file: export {ALLOWED_VARIABLES}={variable}",
                )
                return


@dataclass(frozen=True, kw_only=True)
class HostedOptions(EndpointOptions):
    """The options of every provider; `options_for` adds which variables and which address are its own."""

    dialect: ClassVar[Dialect]

    model: str | None = option("The provider's model.", default=None)
    base_url: str | None = option(
        "Address of the service, if not the provider's own.", default=None, kind="address"
    )
    timeout_s: float = option("Longest wait for one request, in seconds.", default=10.0, gt=0)
    cross_encoder_reranking_enabled: bool | None = option(
        "`false` switches it off; so does the variable RESIFT_CROSS_ENCODER_RERANKING_ENABLED.", default=None
    )
    max_concurrency: int = option("Most requests in flight at once.", default=8, min=1)
    batch_over: int = option("Pools larger than this are split.", default=80, min=0)
    batch_size: int = option("Size of the parts.", default=60, min=1)


def options_for(dialect: Dialect) -> type[HostedOptions]:
    """Return the options of one provider: keys come from the variables that it declares."""
    own = urlsplit(dialect.base_url or "").hostname
    made: Any = dataclasses.make_dataclass(
        "HostedOptions",
        [
            (
                "api_key_env",
                str | None,
                option(_KEY_HELP, default=None, kind="variable", variables=dialect.key_env),
            )
        ],
        bases=(HostedOptions,),
        namespace={
            "__doc__": f"What a pipeline file can say of {dialect.name}.",
            "dialect": dialect,
            "key_hosts": dict.fromkeys(dialect.key_env, own) if own else {},
        },
        frozen=True,
        kw_only=True,
    )
    found: type[HostedOptions] = made
    return found
