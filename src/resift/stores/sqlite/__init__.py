"""The embedded store: documents, keyword index and vectors in one SQLite file.

sqlite_store.py   SQLiteStore, the public class
database.py       the file: tables, metadata, checksums, pooled connections, transactions, error messages
rows.py           stored documents, vectors and attributes, and the readers' list of rows in memory
lexical_index.py  posting lists and BM25
vector_index.py   exact scan and bit codes
writer.py         transactions that add, replace and delete documents; conversion and verification of a file
"""

from __future__ import annotations

from resift.stores.sqlite.sqlite_store import SQLiteOptions, SQLiteStore

__all__ = ["SQLiteOptions", "SQLiteStore"]
