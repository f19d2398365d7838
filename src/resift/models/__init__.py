"""Models on this machine: which are allowed, where their files are, that they are safe, and how they run.

Files are this room's first half: `allowlist` (what may load), `locate` (where it is), `verify` (that it is
the pinned bytes), `local_models` (a folder that the user allows), `hub` (fetching). Nothing here ranks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resift.models.local_models import allow_local as allow_local
    from resift.models.local_models import disallow_local as disallow_local
    from resift.models.local_models import write_manifest as write_manifest
    from resift.models.locate import resolve as resolve
    from resift.models.model_files import ModelFiles as ModelFiles

_HOMES = {
    "ModelFiles": "resift.models.model_files",
    "allow_local": "resift.models.local_models",
    "disallow_local": "resift.models.local_models",
    "resolve": "resift.models.locate",
    "write_manifest": "resift.models.local_models",
}

__all__ = ["ModelFiles", "allow_local", "disallow_local", "resolve", "write_manifest"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'resift.models' has no attribute {name!r}")
