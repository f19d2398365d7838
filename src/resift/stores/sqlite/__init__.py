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

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.stores.sqlite.sqlite_store import SQLiteOptions as SQLiteOptions
    from resift.stores.sqlite.sqlite_store import SQLiteStore as SQLiteStore
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        sqlite_store: SQLiteOptions SQLiteStore
        """,
    )
