"""Models on this machine: which are allowed, where their files are, that they are safe, and how they run.

Files are this room's first half: `allowlist` (what may load), `locate` (where it is), `verify` (that it is
the pinned bytes), `local_models` (a folder that the user allows), `hub` (fetching). Nothing here ranks.
"""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.models.embedding import Embedder as Embedder
    from resift.models.local_models import allow_local as allow_local
    from resift.models.local_models import disallow_local as disallow_local
    from resift.models.local_models import write_manifest as write_manifest
    from resift.models.locate import resolve as resolve
    from resift.models.model_files import ModelFiles as ModelFiles
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        embedding: Embedder
        local_models: allow_local disallow_local write_manifest
        locate: resolve
        model_files: ModelFiles
        """,
    )
