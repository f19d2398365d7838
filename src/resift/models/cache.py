"""Where model files are kept between runs: Resift's own cache, and the hub client's if there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from resift._internal.cache_folders import cache_folder, hub_cache_folder
from resift.errors import ModelFileError
from resift.models.allowlist import ModelSpec


def own_folder(spec: ModelSpec) -> Path:
    """Return where Resift itself keeps this model."""
    return cache_folder("models") / spec.id.replace("/", "--") / spec.revision


def cached_folders(spec: ModelSpec) -> Iterator[Path]:
    """Yield the folders to look in, the hub client's cache first."""
    if spec.hub is not None:
        repo = hub_cache_folder() / f"models--{spec.hub.repo.replace('/', '--')}"
        yield repo / "snapshots" / spec.hub.revision
    yield own_folder(spec)


def holds_all(folder: Path, spec: ModelSpec) -> bool:
    """Say whether every required file is there; half a download is as good as none."""
    return all(os.path.lexists(folder / pinned.name) for pinned in spec.files if pinned.required)


def check_links(folder: Path, spec: ModelSpec) -> None:
    """Refuse links that leave the cached repository; links into its own blobs are how that cache works."""
    repo = _repo_root(folder)
    for pinned in spec.files:
        path = folder / pinned.name
        if not os.path.lexists(path):
            continue
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError) as exc:
            raise ModelFileError(f"Cached model file {path} is a broken link. Delete it.") from exc
        if not real.is_relative_to(repo):
            raise ModelFileError(f"Cached model file {path} links out of its cache. Delete it.")


def _repo_root(folder: Path) -> Path:
    in_hub_cache = folder.parent.name == "snapshots"
    return (folder.parent.parent if in_hub_cache else folder).resolve()
