"""Where an allowed model's files are: explicit folder, local cache, installed carrier, hub."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from resift.errors import ModelFileError, install_command
from resift.events import Sink
from resift.models.allowlist import ModelSpec, check_name, not_allowed, shipped
from resift.models.cache import cached_folders, check_links, holds_all
from resift.models.local_models import allowed_ids, allowed_local
from resift.models.model_files import ModelFiles
from resift.models.model_folder import check_folder, open_folder

__all__ = ["ModelFiles", "carrier_folder", "find_spec", "resolve"]


def resolve(
    model_id: str,
    *,
    folder: Path | str | None = None,
    check: bool = True,
    download: bool = True,
    progress: Sink | None = None,
) -> ModelFiles:
    """Find an allowed model's files and check them; fetch them if nothing on this machine has them.

    An id that nobody allowed raises `ModelNotAllowedError` before anything is read. With check=False the
    hashing of graph and tokenizer is left to `ModelFiles.read`, which always does it: for callers that read
    the bytes at once.
    """
    spec = find_spec(model_id)
    files = _find(spec, folder) or _fetch(spec, download=download, progress=progress)
    files.verify(unread=not check)
    return files


def find_spec(model_id: str) -> ModelSpec:
    """Return what is known of an allowed model, without touching its files."""
    name = check_name(model_id)
    local = allowed_local(name)
    spec = local.spec if local else shipped(name)
    if spec is None:
        raise not_allowed(name, also_known=allowed_ids())
    return spec


def carrier_folder(spec: ModelSpec) -> Path | None:
    """Return the carrier's folder if that package is installed; the package itself is not imported."""
    if spec.carrier is None:
        return None
    try:
        # Located and never imported: the package's own code is not to run.
        found = importlib.util.find_spec(spec.carrier.package)
    except (ImportError, ValueError):
        return None
    for place in (found.submodule_search_locations or ()) if found else ():
        folder = Path(place).parent / spec.carrier.folder
        if folder.is_dir():
            return folder
    return None


def _find(spec: ModelSpec, folder: Path | str | None) -> ModelFiles | None:
    if folder is not None:
        return _explicit(spec, folder)
    local = allowed_local(spec.id)
    if local is not None:
        _check(spec, local.folder)
        return local
    # Before the carrier: what was fetched on purpose wins over what came along.
    for cached in cached_folders(spec):
        if holds_all(cached, spec):
            check_links(cached, spec)
            return ModelFiles(spec=spec, folder=cached, source="cache")
    carried = carrier_folder(spec)
    if carried is not None and holds_all(carried, spec):
        return ModelFiles(spec=spec, folder=carried, source="carrier")
    return None


def _explicit(spec: ModelSpec, folder: Path | str) -> ModelFiles:
    real = open_folder(folder)
    carried = carrier_folder(spec)
    # Installers hard-link packages from their own cache; elsewhere a second name is a way to swap the bytes.
    installed = carried is not None and carried.resolve() == real
    _check(spec, real, hardlinks=installed)
    return ModelFiles(spec=spec, folder=real, source="folder")


def _check(spec: ModelSpec, folder: Path, *, hardlinks: bool = False) -> None:
    required = [pinned.name for pinned in spec.files if pinned.required]
    check_folder(folder, [pinned.name for pinned in spec.files], required=required, hardlinks=hardlinks)


def _fetch(spec: ModelSpec, *, download: bool, progress: Sink | None) -> ModelFiles:
    from resift.models import hub

    if spec.hub is None:
        raise ModelFileError(f"No files of {spec.id!r} on this machine. {_how_to_get(spec)}")
    if not download or hub.offline():
        why = (
            "the hub is switched off (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE)"
            if download
            else "download=False"
        )
        raise ModelFileError(f"No files of {spec.id!r} on this machine, and {why}. {_how_to_get(spec)}")
    return ModelFiles(spec=spec, folder=hub.fetch(spec, progress=progress), source="hub")


def _how_to_get(spec: ModelSpec) -> str:
    if spec.carrier is not None:
        return f"Run: {install_command('local')}, or pass folder= with its files."
    return "Fetch it once while online, or pass folder= with its files."
