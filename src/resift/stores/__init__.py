"""Stores: where documents live and are found. One module per engine; only the asked-for one is imported."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resift.stores.memory import MemoryStore as MemoryStore
    from resift.stores.sqlite import SQLiteStore as SQLiteStore

_HOMES = {
    "MemoryStore": "resift.stores.memory",
    "SQLiteStore": "resift.stores.sqlite",
}

__all__ = ["MemoryStore", "SQLiteStore"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'resift.stores' has no attribute {name!r}")
