"""Which addresses models may come from: https, and plain http to this machine alone."""

from __future__ import annotations

import urllib.parse

from resift.errors import ModelFileError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def check_url(url: str) -> str:
    """Return the URL if it is https, or http to this machine."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname
    except ValueError as exc:
        raise ModelFileError("The hub's address is not a URL.") from exc
    if parts.username or parts.password:
        raise ModelFileError("The hub's address must not carry a name or password.")
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)):
        raise ModelFileError(
            f"Refusing {parts.scheme or 'no scheme'}://{host or ''}: models are fetched over https, "
            "or over http from this machine."
        )
    return url
