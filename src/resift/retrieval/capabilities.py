"""What must be granted before any store or service is touched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from resift.errors import CapabilityError
from resift.protocols import needs_of
from resift.retrieval.store_ref import StoreRef


def required(refs: Sequence[StoreRef], parts: Iterable[object]) -> tuple[str, ...]:
    """Return `db.<store>:read` per store, then what the parts ask for in their `requires`."""
    names = [ref.capability for ref in refs]
    for part in parts:
        names.extend(needs_of(part))
    return tuple(dict.fromkeys(names))


def check_granted(needed: Iterable[str], granted: Collection[str]) -> None:
    """Raise CapabilityError that names what is missing."""
    missing = [name for name in needed if name not in granted]
    if missing:
        raise CapabilityError(missing)
