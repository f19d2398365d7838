"""Scorers and rerankers: local models, hosted APIs, chat models, BM25 with cosine, and score caches."""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
