"""`resift serve`: an ASGI app that is compatible with the rerank and embedding APIs of other providers."""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
