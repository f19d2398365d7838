"""Rerankers behind an HTTP API: one client, with providers as data. Requires the extra `hosted` at run time."""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
