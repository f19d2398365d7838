"""Local models: `registry` (allowlist), `locate` (files), `loading` (a model in memory) and `session` (inference)."""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
