"""Stores: where documents live and are found. One module per engine; only the asked-for one is imported."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resift.stores.cypher_guard import check_cypher as check_cypher
    from resift.stores.ladybug_store import LadybugGraphStore as LadybugGraphStore
    from resift.stores.lancedb_store import LanceDBVectorStore as LanceDBVectorStore
    from resift.stores.memory import MemoryStore as MemoryStore
    from resift.stores.postgres_store import PostgresStore as PostgresStore
    from resift.stores.qdrant_store import QdrantVectorStore as QdrantVectorStore
    from resift.stores.sqlite import SQLiteStore as SQLiteStore

_HOMES = {
    "LadybugGraphStore": "resift.stores.ladybug_store",
    "LanceDBVectorStore": "resift.stores.lancedb_store",
    "MemoryStore": "resift.stores.memory",
    "PostgresStore": "resift.stores.postgres_store",
    "QdrantVectorStore": "resift.stores.qdrant_store",
    "SQLiteStore": "resift.stores.sqlite",
    "check_cypher": "resift.stores.cypher_guard",
}

__all__ = [
    "LadybugGraphStore",
    "LanceDBVectorStore",
    "MemoryStore",
    "PostgresStore",
    "QdrantVectorStore",
    "SQLiteStore",
    "check_cypher",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'resift.stores' has no attribute {name!r}")
