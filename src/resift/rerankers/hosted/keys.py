"""Where keys come from, and a holder that never prints them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from resift.errors import ConfigError
from resift.resilience import key_id

_LONGEST = 8192


class Secret:
    """A key that shows itself only when asked by `reveal`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the key itself."""
        return self._value

    @property
    def id(self) -> str:
        """A short name for the key that does not give it away, for breakers and reports."""
        return key_id(self._value)

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("A key is not pickled. Build the reranker anew where it is needed.")


def find_key(
    provider: str,
    *,
    api_key: str | None = None,
    api_key_file: str | os.PathLike[str] | None = None,
    env: Sequence[str] = (),
) -> Secret | None:
    """Return the key given, else the file's, else the first set environment variable's, else None.

    Raises ConfigError for a key or a file that cannot be meant; the message never quotes the key.
    """
    if api_key is not None:
        return _checked(api_key, provider, "api_key")
    if api_key_file is not None:
        return _checked(_read(api_key_file, provider), provider, f"api_key_file {str(api_key_file)!r}")
    for variable in env:
        value = os.environ.get(variable, "").strip()
        if value:
            return _checked(value, provider, f"the environment variable {variable}")
    return None


def _read(path: str | os.PathLike[str], provider: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(_LONGEST + 1).strip()
    except (OSError, UnicodeDecodeError) as exc:
        cause = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
        # The exception itself may quote the file's bytes, so it is not chained.
        raise ConfigError(
            f"{provider}: api_key_file {str(path)!r} cannot be read: {cause}. "
            "Give the path of a readable file that holds only the key."
        ) from None


def _checked(value: str, provider: str, origin: str) -> Secret:
    value = value.strip() if isinstance(value, str) else ""
    if not value:
        raise ConfigError(f"{provider}: {origin} is empty. Put the key there, or leave it out.")
    # A key goes into a header; HTTP libraries quote bad header values in their errors.
    if len(value) > _LONGEST or not all("!" <= char <= "~" for char in value):
        raise ConfigError(
            f"{provider}: {origin} is no key: only printable ASCII without spaces, "
            f"at most {_LONGEST} characters, is allowed."
        )
    return Secret(value)
