"""Access control: API keys from a file, the environment or the options, and the middleware that checks them."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic

from resift.deadline import Clock
from resift.errors import ConfigError
from resift.server.endpoint import App, Receive, Request, Scope, Send, route_path
from resift.server.schema import RequestFailed

DEFAULT_VARIABLE = "RESIFT_API_KEYS"
CHECK_INTERVAL_S = 1.0  # between checks for changes to the key file

OPEN_PATHS = frozenset({"/", "/livez", "/readyz", "/health", "/ping", "/tei/health"})
"""Paths that do not require a key, in addition to the files of the playground."""

log = logging.getLogger("resift.server")


class Keys:
    """The accepted keys. If a key file is deleted or becomes unreadable, the keys that were read last stay valid."""

    def __init__(
        self, *, file: Path | None = None, env: str | None = None, keys: Iterable[str] = (), clock: Clock = monotonic
    ) -> None:
        self._file = file
        self._clock = clock
        self._checked_at_s = clock()
        self._stamp: tuple[int, int, int] | None = None
        self._fixed = frozenset(map(_digest, [*keys, *(_keys_in_environment(env) if env else ())]))
        self._from_file: frozenset[bytes] = frozenset()
        if file is None:
            return
        try:
            self._stamp, self._from_file = _stamp(file), _read_keys(file)
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"{file}: cannot read the keys: {exc}. Write one key per line.") from exc
        if not self._from_file:
            raise ConfigError(f"{file} contains no key. Write one key per line; lines with # are comments.")

    @property
    def needed(self) -> bool:
        """Whether requests need a key."""
        return bool(self._file or self._fixed)

    def allow(self, key: str) -> bool:
        """Whether the key is valid."""
        self._refresh()
        digest = _digest(key)
        valid = False
        # All keys are compared, so the time does not reveal which one matched.
        for valid_digest in (*self._fixed, *self._from_file):
            valid |= hmac.compare_digest(digest, valid_digest)
        return valid

    def _refresh(self) -> None:
        now_s = self._clock()
        if self._file is None or now_s - self._checked_at_s < CHECK_INTERVAL_S:
            return
        self._checked_at_s = now_s
        try:
            stamp = _stamp(self._file)
            if stamp == self._stamp:
                return
            keys = _read_keys(self._file)
        except (OSError, UnicodeDecodeError) as exc:
            log.warning("cannot read the key file; the previous keys stay valid: %s", type(exc).__name__)
            return
        # An editor may empty the file before writing it. This must not open the server.
        if not keys:
            log.warning("the key file contains no key; the previous keys stay valid")
            return
        self._stamp, self._from_file = stamp, keys
        log.info("reloaded the key file: %d keys", len(keys))


def _read_keys(file: Path) -> frozenset[bytes]:
    return frozenset(map(_digest, _split_keys(file.read_text(encoding="utf-8"))))


def _stamp(file: Path) -> tuple[int, int, int]:
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _keys_in_environment(name: str) -> list[str]:
    value = os.environ.get(name)
    keys = _split_keys(value or "")
    if not keys and (value is not None or name != DEFAULT_VARIABLE):
        # Setting the variable means that keys are required. Without one, the server would be open.
        raise ConfigError(f"The variable {name} contains no key. Set it to one or more keys, separated by commas.")
    return keys


def _split_keys(text: str) -> list[str]:
    lines = (line.strip() for line in text.replace(",", "\n").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


class AccessMiddleware:
    """Requires a key on every path except health and the files of the playground.

    Without keys, it rejects requests that only a web page of another site would send: requests with a foreign
    host name (DNS rebinding) and writes from a foreign origin.
    """

    def __init__(self, app: App, keys: Keys, *, allowed_hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._app = app
        self._keys = keys
        self._check = self._check_key if keys.needed else self._check_site
        self._origins = frozenset(origins)
        self._hosts = frozenset({*allowed_hosts, *(origin.partition("://")[2] for origin in self._origins)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request or a websocket, or reject it."""
        if scope["type"] == "http":
            request: Request = scope["resift.request"]
            error = self._check(request.method, request.path, request.headers)
            if error is not None:
                await request.send(send, request.failure(error))
                return
        elif scope["type"] == "websocket":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            if self._check("WEBSOCKET", route_path(scope), headers) is not None:
                await receive()
                await send({"type": "websocket.close", "code": 1008})
                return
        await self._app(scope, receive, send)

    def _check_key(self, method: str, path: str, headers: Mapping[str, str]) -> RequestFailed | None:
        if method in ("GET", "HEAD") and (path in OPEN_PATHS or path.startswith("/playground/")):
            return None
        # One TEI client sends its token without "Bearer".
        tei_path = path.startswith("/tei/") or path in ("/rerank", "/embed", "/info", "/")
        key = key_from_header(headers.get("authorization", ""), allow_bare=tei_path)
        if not key:
            return RequestFailed("unauthorized", "A key is required. Send the header Authorization: Bearer KEY")
        return None if self._keys.allow(key) else RequestFailed("unauthorized", "The key is invalid")

    def _check_site(self, method: str, path: str, headers: Mapping[str, str]) -> RequestFailed | None:
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        # DNS rebinding needs a domain name; IP addresses and names without a dot are safe.
        is_local = "." not in name or name.endswith(".localhost") or name.replace(".", "").isdecimal()
        if not is_local and not name.startswith("[") and self._hosts.isdisjoint({host, name, "*"}):
            problem = "This host name is not allowed without a key. Allow it with --allowed-host NAME, or use keys"
            return RequestFailed("foreign_host", problem)
        origin = headers.get("origin")
        if origin is None or method in ("GET", "HEAD", "OPTIONS") or origin in self._origins:
            return None
        site = origin.partition("://")[2]
        if site == host or not self._hosts.isdisjoint({site, "*"}):
            return None
        problem = "Cross-site writes are not allowed. Allow a site with --cors-origin URL, or use keys"
        return RequestFailed("cross_site", problem)


def key_from_header(header: str, *, allow_bare: bool = False) -> str:
    """Return the key of an Authorization header, or ""."""
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return header.strip() if allow_bare and not token else ""
