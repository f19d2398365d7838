"""Stores keep documents and search them. There is one module per engine, imported on first use."""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
