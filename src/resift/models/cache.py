"""Where model files are kept between runs: Resift's own cache, and the hub client's if there is one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from resift.errors import ModelFileError
from resift.models.allowlist import ModelSpec


def own_folder(spec: ModelSpec) -> Path:
    """Return where Resift itself keeps this model: `$RESIFT_HOME/models`, else below the user's cache."""
    home = os.environ.get("RESIFT_HOME")
    base = _expanded(home) if home else _user_cache() / "resift"
    return base / "models" / spec.id.replace("/", "--") / spec.revision


def cached_folders(spec: ModelSpec) -> Iterator[Path]:
    """Yield the folders to look in, the hub client's cache first."""
    if spec.hub is not None:
        repo = _hub_cache() / f"models--{spec.hub.repo.replace('/', '--')}"
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


def _hub_cache() -> Path:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return _expanded(os.environ[variable])
    home = os.environ.get("HF_HOME")
    return (_expanded(home) if home else _user_cache() / "huggingface") / "hub"


def _user_cache() -> Path:
    xdg = os.environ.get("XDG_CACHE_HOME")
    return _expanded(xdg) if xdg else _expanded("~/.cache")


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        # A user without a home, as in some containers: whatever lies there is verified like all else.
        return Path(tempfile.gettempdir()) / "resift-cache"
