"""The embedded store: documents, keyword index and vectors in one SQLite file."""

from __future__ import annotations

from resift.stores.sqlite.sqlite_store import SQLiteOptions, SQLiteStore

__all__ = ["SQLiteOptions", "SQLiteStore"]
