"""Stores keep documents and search them. There is one module per engine, imported on first use."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.stores.graph.cypher_guard import check_cypher as check_cypher
    from resift.stores.graph.ladybug import LadybugGraphStore as LadybugGraphStore
    from resift.stores.lancedb import LanceDBVectorStore as LanceDBVectorStore
    from resift.stores.memory import MemoryStore as MemoryStore
    from resift.stores.postgres import PostgresStore as PostgresStore
    from resift.stores.qdrant import QdrantVectorStore as QdrantVectorStore
    from resift.stores.sqlite.sqlite_store import SQLiteStore as SQLiteStore
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        graph.cypher_guard: check_cypher
        graph.ladybug: LadybugGraphStore
        lancedb: LanceDBVectorStore
        memory: MemoryStore
        postgres: PostgresStore
        qdrant: QdrantVectorStore
        sqlite.sqlite_store: SQLiteStore
        """,
    )
