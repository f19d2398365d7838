from .graph.cypher_guard import check_cypher as check_cypher
from .graph.ladybug import LadybugGraphStore as LadybugGraphStore
from .lancedb import LanceDBVectorStore as LanceDBVectorStore
from .memory import MemoryStore as MemoryStore
from .postgres import PostgresStore as PostgresStore
from .qdrant import QdrantVectorStore as QdrantVectorStore
from .sqlite.sqlite_store import SQLiteStore as SQLiteStore
