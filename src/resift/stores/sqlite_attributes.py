"""Metadata as the file indexes it for filters: a typed value per key and row."""

from __future__ import annotations

import hashlib

from resift.stores.filtering import Value, canonical, filter_values, is_scalar
from resift.types import Metadata

_LONGEST = 200  # characters of a string kept as it is; longer ones are kept as a digest
INT64 = 2**63


def attributes_of(metadata: Metadata, *, lists: bool = True) -> list[tuple[str, object]]:
    """Return the distinct (key, stored value) pairs that filters compare; each item of a list has its own.

    `lists=False` leaves lists out, as files of version 2 do.
    """
    pairs = [
        (key, stored(item))
        for key, value in metadata.items()
        if lists or is_scalar(value)
        for item in filter_values(value)
    ]
    return list(dict.fromkeys(pairs))


def stored(value: Value) -> object:
    """Return a value that SQLite compares as `filtering` does: bytes where it has no such type."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < INT64 else value
    if isinstance(value, int):
        return value if -INT64 <= value < INT64 else b"#" + canonical(value).encode()[:_LONGEST]
    if len(value) <= _LONGEST:
        return value
    return b"#" + hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
