"""Local models: allowlist, file locations, inspection and inference.

Start with `registry` (allowlist), `locate` (files) and `loading` (a model in memory). `engine` schedules
forward passes and `session` computes them. `pairs` and `embedder` turn their outputs into scores and vectors.
"""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.models.embedder import Embedder as Embedder
    from resift.models.local_models import allow_local as allow_local
    from resift.models.local_models import write_manifest as write_manifest
    from resift.models.locate import resolve as resolve
    from resift.models.registry import ModelFiles as ModelFiles
    from resift.models.registry import disallow_local as disallow_local
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        embedder: Embedder
        local_models: allow_local write_manifest
        locate: resolve
        registry: ModelFiles disallow_local
        """,
    )
