"""Stores: where documents live and are found. One module per engine; only the asked-for one is imported."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.stores.cypher_guard import check_cypher as check_cypher
    from resift.stores.ladybug_store import LadybugGraphStore as LadybugGraphStore
    from resift.stores.lancedb_store import LanceDBVectorStore as LanceDBVectorStore
    from resift.stores.memory import MemoryStore as MemoryStore
    from resift.stores.postgres_store import PostgresStore as PostgresStore
    from resift.stores.qdrant_store import QdrantVectorStore as QdrantVectorStore
    from resift.stores.sqlite import SQLiteStore as SQLiteStore
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        cypher_guard: check_cypher
        ladybug_store: LadybugGraphStore
        lancedb_store: LanceDBVectorStore
        memory: MemoryStore
        postgres_store: PostgresStore
        qdrant_store: QdrantVectorStore
        sqlite: SQLiteStore
        """,
    )
