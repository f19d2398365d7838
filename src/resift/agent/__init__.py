"""The knowledge-graph agent: answers questions from a pack, with sources."""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
