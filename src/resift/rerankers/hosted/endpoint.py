"""Which addresses may be asked: https, or loopback where that was allowed."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from resift.errors import ConfigError

_VERSIONS = ("/v1", "/v2")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A checked base URL of one provider."""

    provider: str
    base_url: str
    loopback: bool

    def url(self, path: str) -> str:
        """Return the address of a path; a version that both parts name is written once."""
        for version in _VERSIONS:
            if self.base_url.endswith(version) and path.startswith(f"{version}/"):
                return self.base_url + path.removeprefix(version)
        return self.base_url + path

    @property
    def origin(self) -> str:
        """Scheme, host and port: what shares connections and a concurrency limit."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}"


def endpoint(provider: str, base_url: str, *, allow_loopback: bool = False) -> Endpoint:
    """Return the endpoint, or raise ConfigError that says which rule the base URL breaks."""
    parts = _split(provider, base_url)
    loopback = is_loopback(parts.hostname or "")
    if loopback and not allow_loopback:
        raise ConfigError(
            f"{provider}: base_url {base_url!r} is this machine. Pass allow_loopback=True if that is meant."
        )
    if parts.scheme != "https" and not loopback:
        raise ConfigError(
            f"{provider}: base_url {base_url!r} is not https. "
            "Use https; plain http is only for loopback with allow_loopback=True."
        )
    return Endpoint(provider, base_url.rstrip("/"), loopback)


def is_loopback(host: str) -> bool:
    """Return whether the host name or address is this machine by its spelling alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _split(provider: str, base_url: str) -> SplitResult:
    wrong = None
    try:
        parts = urlsplit(str(base_url or ""))
        _ = parts.port  # parsed, and refused, on access
    except ValueError:
        raise ConfigError(
            f"{provider}: base_url is no URL. Write it as https://host[:port][/path]."
        ) from None
    if "@" in parts.netloc:
        # Not quoted: the part before the @ is a credential.
        raise ConfigError(
            f"{provider}: base_url has a user name or password. Pass the key as api_key instead."
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        wrong = "is not https://host[:port][/path]"
    elif not all("!" <= char <= "~" for char in base_url) or "\\" in base_url:
        wrong = "has characters that do not belong in a URL"
    elif parts.query or parts.fragment or "?" in base_url or "#" in base_url:
        wrong = "has a query or a fragment"
    if wrong:
        raise ConfigError(
            f"{provider}: base_url {base_url!r} {wrong}. Write it as https://host[:port][/path]."
        )
    return parts
