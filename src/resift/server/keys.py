"""API keys: from a file that may change while the server runs, from the environment, or given."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path

from resift.deadline import Clock
from resift.errors import ConfigError

DEFAULT_VARIABLE = "RESIFT_API_KEYS"
CHECK_EVERY_S = 1.0
"""How soon a changed key file counts."""

log = logging.getLogger("resift.server")


class Keys:
    """Says whether a client's key is one of ours, in the same time for every key.

    Without any source of keys everybody may come in. A key file that vanishes or becomes unreadable later
    leaves the keys that were read last.
    """

    def __init__(
        self,
        *,
        file: Path | None = None,
        env: str | None = None,
        given: Iterable[str] = (),
        clock: Clock = time.monotonic,
    ) -> None:
        self._file = file
        self._clock = clock
        self._checked_s = clock()
        self._stamp: tuple[int, int, int] | None = None
        self._fixed = _digests([*given, *(_from_environment(env) if env else ())])
        self._from_file: frozenset[bytes] = frozenset()
        if file is not None:
            self._read_first(file)

    @property
    def needed(self) -> bool:
        """Whether a request has to carry a key."""
        return bool(self._file or self._fixed)

    def allow(self, key: str) -> bool:
        """Return whether the key is known."""
        self._refresh()
        digest = _digest(key)
        found = False
        # All are compared, so that the time says nothing about which one matched.
        for known in (*self._fixed, *self._from_file):
            found |= hmac.compare_digest(digest, known)
        return found

    def _read_first(self, file: Path) -> None:
        try:
            self._stamp = _stamp(file)
            self._from_file = _digests(_split(file.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"{file}: cannot read the keys: {exc}. Write one key a line.") from exc
        if not self._from_file:
            raise ConfigError(f"{file} has no key. Write one key a line; lines with # are comments.")

    def _refresh(self) -> None:
        now_s = self._clock()
        if self._file is None or now_s - self._checked_s < CHECK_EVERY_S:
            return
        self._checked_s = now_s
        try:
            stamp = _stamp(self._file)
            if stamp == self._stamp:
                return
            found = _digests(_split(self._file.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as exc:
            log.warning("key file not readable, the last keys stay: %s", type(exc).__name__)
            return
        # An editor may empty a file before it writes it: that must not open the door.
        if not found:
            log.warning("key file has no key, the last keys stay")
            return
        self._stamp, self._from_file = stamp, found
        log.info("keys read again: %d", len(found))


def _stamp(file: Path) -> tuple[int, int, int]:
    facts = file.stat()
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


def _from_environment(name: str) -> list[str]:
    written = os.environ.get(name)
    keys = _split(written or "")
    if not keys and (written is not None or name != DEFAULT_VARIABLE):
        # Who names a variable wants keys: without one the server would let everybody in.
        raise ConfigError(f"The variable {name} has no key. Set it to one or more, with commas between.")
    return keys


def _split(written: str) -> list[str]:
    lines = (line.strip() for line in written.replace(",", "\n").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _digests(keys: Iterable[str]) -> frozenset[bytes]:
    return frozenset(map(_digest, keys))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()
