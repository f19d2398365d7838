"""Which base URLs may be asked: https, and this machine or a private network only where that was allowed."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from resift.errors import ConfigError
from resift.rerankers.hosted.addresses import reach_of

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


def endpoint(
    provider: str, base_url: str, *, allow_loopback: bool = False, allow_private: bool = False
) -> Endpoint:
    """Return the endpoint, or raise ConfigError that says which rule the base URL breaks."""
    parts = _split(provider, base_url)
    where = reach_of(parts.hostname or "")
    if where == "link-local":
        raise ConfigError(
            f"{provider}: base_url {base_url!r} is a link-local or metadata address, where machines keep "
            "their own credentials. Use the address of the provider."
        )
    for reach, allowed, option, what in (
        ("loopback", allow_loopback, "allow_loopback", "this machine"),
        ("private", allow_private, "allow_private", "in a private network"),
    ):
        if where == reach and not allowed:
            raise ConfigError(
                f"{provider}: base_url {base_url!r} is {what}. Pass {option}=True if that is meant."
            )
    if parts.scheme != "https" and where != "loopback":
        raise ConfigError(
            f"{provider}: base_url {base_url!r} is not https. "
            "Use https; plain http is only for loopback with allow_loopback=True."
        )
    return Endpoint(provider, base_url.rstrip("/"), where == "loopback")


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
