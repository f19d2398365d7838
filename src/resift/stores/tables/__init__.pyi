from .collections import ChromaCollection as ChromaCollection
from .collections import QdrantCollection as QdrantCollection
from .databases import PostgresTable as PostgresTable
from .databases import SQLStatement as SQLStatement
from .elasticsearch import ElasticsearchQuery as ElasticsearchQuery
from .embedded import DuckDBTable as DuckDBTable
from .embedded import SQLiteTable as SQLiteTable
from .lancedb_table import LanceDBTable as LanceDBTable
