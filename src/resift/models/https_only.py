"""A URL opener that speaks https alone, also through redirects; plain http only to this machine."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPMessage
from typing import IO

from resift.errors import ModelFileError

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def check_url(url: str) -> str:
    """Return the URL if it is https, or http to this machine."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname
    except ValueError as exc:
        raise ModelFileError("The hub's address is not a URL.") from exc
    if parts.username or parts.password:
        raise ModelFileError("The hub's address must not carry a name or password.")
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)):
        raise ModelFileError(
            f"Refusing {parts.scheme or 'no scheme'}://{host or ''}: models are fetched over https, "
            "or over http from this machine."
        )
    return url


def opener(url: str) -> urllib.request.OpenerDirector:
    """Return an opener without file, ftp and data, which the default one would follow."""
    here = urllib.parse.urlsplit(check_url(url)).hostname in _LOOPBACK
    director = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler({} if here else None),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _SafeRedirect(),
    ):
        director.add_handler(handler)
    return director


class _SafeRedirect(urllib.request.HTTPRedirectHandler):
    """Follow to https from anywhere; to http on this machine only from this machine."""

    max_redirections = 5

    def redirect_request(  # noqa: PLR0917 - the signature is the standard library's
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Refuse a target that may not be asked; keep the range that was asked for."""
        to = urllib.parse.urlsplit(check_url(newurl))
        if to.scheme == "http" and urllib.parse.urlsplit(req.full_url).scheme == "https":
            raise ModelFileError("The hub redirects from https to http, which is refused.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
