"""Base URLs, checks of network addresses, and API keys that are never printed."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn
from urllib.parse import SplitResult, urlsplit

from resift.errors import ConfigError
from resift.resilience import key_id

_VERSIONS = ("/v1", "/v2")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A validated base URL of a provider."""

    provider: str
    base_url: str
    loopback: bool

    def url(self, path: str) -> str:
        """Return the URL for a path; a version such as /v1 in both parts is included once."""
        for version in _VERSIONS:
            if self.base_url.endswith(version) and path.startswith(f"{version}/"):
                return self.base_url + path.removeprefix(version)
        return self.base_url + path

    @property
    def origin(self) -> str:
        """Scheme, host and port; requests to one origin share connections and a concurrency limit."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}"


def check_endpoint(
    provider: str, base_url: str, *, allow_loopback: bool = False, allow_private: bool = False
) -> Endpoint:
    """Return the endpoint, or raise ConfigError with the rule that the base URL violates."""
    parts = _split_url(provider, base_url)
    reach = network_scope(parts.hostname or "")
    problem = None
    if reach == "link-local":
        problem = "a link-local or metadata address, where machines keep credentials. Use the provider's address"
    elif reach == "loopback" and not allow_loopback:
        problem = "this machine. Pass allow_loopback=True if that is intended"
    elif reach == "private" and not allow_private:
        problem = "in a private network. Pass allow_private=True if that is intended"
    elif parts.scheme != "https" and reach != "loopback":
        problem = "not https. Use https; plain http is only for loopback with allow_loopback=True"
    if problem:
        raise ConfigError(f"{provider}: base_url {base_url!r} is {problem}.")
    return Endpoint(provider, base_url.rstrip("/"), reach == "loopback")


def _split_url(provider: str, base_url: str) -> SplitResult:
    problem = None
    form = "Write it as https://host[:port][/path]."
    try:
        parts = urlsplit(str(base_url or ""))
        _ = parts.port  # parsed on access; raises ValueError if invalid
    except ValueError:
        raise ConfigError(f"{provider}: base_url is not a URL. {form}") from None
    if "@" in parts.netloc:
        # The URL is not quoted, because the part before the @ is a credential.
        raise ConfigError(f"{provider}: base_url contains a user name or password. Pass the key as api_key instead.")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        problem = "is not https://host[:port][/path]"
    elif not all("!" <= char <= "~" for char in base_url) or "\\" in base_url:
        problem = "contains characters that are not allowed in a URL"
    elif parts.query or parts.fragment or "?" in base_url or "#" in base_url:
        problem = "has a query or a fragment"
    if problem:
        raise ConfigError(f"{provider}: base_url {base_url!r} {problem}. {form}")
    return parts


# --- Network scope of a host, from its spelling alone, without a DNS lookup ---------------------------------

Reach = Literal["public", "loopback", "private", "link-local"]
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# Host names of cloud metadata services, which serve the credentials of the requesting machine.
_METADATA_NAMES = {"metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
# Metadata addresses outside 169.254.0.0/16: Amazon over IPv6, Oracle, Alibaba and Azure.
_METADATA_ADDRESSES = frozenset(
    map(ipaddress.ip_address, ("fd00:ec2::254", "192.0.0.192", "100.100.100.200", "168.63.129.16"))
)
# Loopback names in the hosts files of Debian and Red Hat.
_LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback", "localhost4", "localhost6"})
_LOOPBACK_SUFFIXES = (".localhost", ".localdomain", ".localdomain4", ".localdomain6")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")


def network_scope(host: str) -> Reach:
    """Return the network scope of a host, based on its spelling alone; unknown names count as public.

    Every spelling that a resolver accepts is recognized: 127.1, 2130706433, 0x7f.1, [::ffff:127.0.0.1].
    """
    name = host.rstrip(".").lower()
    if name in _LOOPBACK_NAMES or name.endswith(_LOOPBACK_SUFFIXES):
        return "loopback"
    if name in _METADATA_NAMES:
        return "link-local"
    address = _parse_address(name)
    if address is None:
        return "public"
    if address.is_link_local or address in _METADATA_ADDRESSES:
        return "link-local"
    # 0.0.0.0 and :: reach this machine on most systems.
    if address.is_loopback or address.is_unspecified or address in ipaddress.ip_network("0.0.0.0/8"):
        return "loopback"
    return "public" if address.is_global and not address.is_multicast else "private"


def is_public_name(host: str) -> bool:
    """Whether a host may belong to a third party: an address, or a name with a dot, outside this network."""
    return network_scope(host) in ("public", "link-local") and ("." in host.rstrip(".") or ":" in host)


def _parse_address(name: str) -> IPAddress | None:
    try:
        address: IPAddress = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        try:
            # Old spellings: 127.1, octal, hexadecimal, a single number. inet_aton parses them without a lookup.
            address = ipaddress.IPv4Address(socket.inet_aton(name))
        except (OSError, UnicodeError):
            return None
    if isinstance(address, ipaddress.IPv4Address):
        return address
    # The IPv4 address embedded in an IPv6 address.
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if inner is None and (address in _NAT64 or address in _TRANSLATED or 1 < int(address) < 1 << 32):
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


# --- Keys ---------------------------------------------------------------------------------------------------

_MAX_KEY_CHARS = 8192


class Secret:
    """An API key whose value only `reveal` returns."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the key itself."""
        return self._value

    @property
    def id(self) -> str:
        """Short identifier for breakers and reports; it does not reveal the key."""
        return key_id(self._value)

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("API keys cannot be pickled. Create the reranker in the process that needs it.")


def find_key(
    provider: str,
    api_key: str | None = None,
    api_key_file: str | os.PathLike[str] | None = None,
    *,
    env: Sequence[str] = (),
) -> Secret | None:
    """Return the key, or else that in the file, or else in the first variable that is set. No message quotes it."""
    if api_key is not None:
        return _check_key(api_key, provider, "api_key")
    if api_key_file is not None:
        try:
            with Path(api_key_file).open(encoding="utf-8") as file:
                content = file.read(_MAX_KEY_CHARS + 1)
        except (OSError, UnicodeDecodeError) as exc:
            cause = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
            # Not chained, because the exception may quote the file's bytes.
            raise ConfigError(
                f"{provider}: api_key_file {str(api_key_file)!r} cannot be read: {cause}. "
                "Pass the path of a readable file that contains only the key."
            ) from None
        return _check_key(content, provider, f"api_key_file {str(api_key_file)!r}")
    for variable in env:
        value = os.environ.get(variable, "").strip()
        if value:
            return _check_key(value, provider, f"the environment variable {variable}")
    return None


def _check_key(value: str, provider: str, origin: str) -> Secret:
    value = value.strip() if isinstance(value, str) else ""
    if not value:
        raise ConfigError(f"{provider}: {origin} is empty. Put the key there, or omit it.")
    # The key is sent in a header, and HTTP libraries quote bad header values in their errors.
    if len(value) > _MAX_KEY_CHARS or not all("!" <= char <= "~" for char in value):
        raise ConfigError(
            f"{provider}: {origin} is not a key: only printable ASCII without spaces, "
            f"at most {_MAX_KEY_CHARS} characters, is allowed."
        )
    return Secret(value)
