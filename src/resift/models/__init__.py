"""Local models: allowlist, file locations, inspection and inference.

Start with `registry` (allowlist), `locate` (files) and `loading` (a model in memory). `engine` schedules
forward passes and `session` computes them. `pairs` and `embedder` turn their outputs into scores and vectors.
"""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
