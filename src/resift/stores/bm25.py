"""BM25 lives in `resift.text.bm25`; this name stays for what stores import."""

from resift.text.bm25 import BM25, idf

__all__ = ["BM25", "idf"]
