"""The embedded store: documents, keyword index and vectors in one SQLite file.

sqlite_store.py   SQLiteStore, the public class
database.py       the file: opening, pooled connections, transactions, error messages
tables.py         table definitions, file metadata, checksums
rows.py           stored documents and vectors, and the list of rows that readers keep in memory
lexical_index.py  posting lists and BM25
vector_index.py   exact scan and bit codes
attributes.py     metadata filters in SQL
writer.py         transactions that add, replace and delete documents; conversion of older files
integrity.py      the full check of a file
"""

from __future__ import annotations

from resift.stores.sqlite.sqlite_store import SQLiteOptions, SQLiteStore

__all__ = ["SQLiteOptions", "SQLiteStore"]
