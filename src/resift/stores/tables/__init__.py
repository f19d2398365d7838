"""Read-only stores that search existing tables and collections in place."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.stores.tables.collections import ChromaCollection as ChromaCollection
    from resift.stores.tables.collections import QdrantCollection as QdrantCollection
    from resift.stores.tables.databases import PostgresTable as PostgresTable
    from resift.stores.tables.databases import SQLStatement as SQLStatement
    from resift.stores.tables.elasticsearch import ElasticsearchQuery as ElasticsearchQuery
    from resift.stores.tables.embedded import DuckDBTable as DuckDBTable
    from resift.stores.tables.embedded import SQLiteTable as SQLiteTable
    from resift.stores.tables.lancedb_table import LanceDBTable as LanceDBTable
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        collections: ChromaCollection QdrantCollection
        databases: PostgresTable SQLStatement
        elasticsearch: ElasticsearchQuery
        embedded: DuckDBTable SQLiteTable
        lancedb_table: LanceDBTable
        """,
    )
