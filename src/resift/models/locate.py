"""Find an allowed model's files in a given folder, a local cache, an installed model package or the hub."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from resift._internal.files import cache_folder, hub_cache_folder
from resift.errors import ModelFileError, install_command
from resift.events import Sink
from resift.models import registry
from resift.models.local_models import check_folder, open_folder
from resift.models.registry import ModelFiles, ModelSpec


def resolve(
    model_id: str,
    *,
    folder: Path | str | None = None,
    check: bool = True,
    download: bool = True,
    progress: Sink | None = None,
) -> ModelFiles:
    """Find and check an allowed model's files, and download them if they are not on this machine.

    An id that is not allowed raises `ModelNotAllowedError` before anything is read. With check=False,
    the model and tokenizer files are not hashed here; `ModelFiles.read` always hashes the bytes it returns.
    """
    spec = registry.find_spec(model_id)
    files = _find_files(spec, folder) or _download(spec, download=download, progress=progress)
    files.verify(only_unread=not check)
    return files


def package_folder(spec: ModelSpec) -> Path | None:
    """Return the model's folder in its model package, or None if that is not installed. Nothing is imported."""
    if spec.package is None:
        return None
    try:
        module = importlib.util.find_spec(spec.package.name)
    except (ImportError, ValueError):
        return None
    for location in (module.submodule_search_locations or ()) if module else ():
        folder = Path(location).parent / spec.package.folder
        if folder.is_dir():
            return folder
    return None


def download_folder(spec: ModelSpec) -> Path:
    """Return the folder that this model is downloaded to."""
    return cache_folder("models") / spec.id.replace("/", "--") / spec.revision


def _find_files(spec: ModelSpec, folder: Path | str | None) -> ModelFiles | None:
    installed = package_folder(spec)
    names = [pinned.name for pinned in spec.files]
    required = [pinned.name for pinned in spec.files if pinned.required]
    if folder is not None:
        real = open_folder(folder)
        # Installers hard-link packages from their cache. Elsewhere, a second name would allow the bytes to be swapped.
        allow_hardlinks = installed is not None and installed.resolve() == real
        check_folder(real, names, required=required, allow_hardlinks=allow_hardlinks)
        return ModelFiles(spec=spec, folder=real, source="folder")
    local = registry.find_local(spec.id)
    if local is not None:
        if local.spec.onnx:
            check_folder(local.folder, names, required=required)
        return local
    _, locked_folder = registry.find_locked(spec.id) or (None, None)
    if locked_folder is not None:
        if not _is_complete(locked_folder, required):
            raise ModelFileError(
                f"{locked_folder} lacks files of {spec.id!r} that the lock file pins. Restore the folder, or "
                f"run: resift models add {locked_folder} --name {spec.id}"
            )
        return ModelFiles(spec=spec, folder=locked_folder, source="local")
    candidates = [download_folder(spec)]
    if spec.hub is not None:
        repo = hub_cache_folder() / f"models--{spec.hub.repo.replace('/', '--')}"
        candidates.insert(0, repo / "snapshots" / spec.hub.revision)
    for cached in candidates:
        if _is_complete(cached, required):
            _check_cached_links(cached, names)
            return ModelFiles(spec=spec, folder=cached, source="cache")
    # Checked after the caches, so that a deliberate download takes precedence over the bundled copy.
    if installed is not None and _is_complete(installed, required):
        return ModelFiles(spec=spec, folder=installed, source="package")
    return None


def _is_complete(folder: Path, required: list[str]) -> bool:
    return all(os.path.lexists(folder / name) for name in required)


def _check_cached_links(folder: Path, names: list[str]) -> None:
    """Reject links that leave the cached repository. Links to its blobs are part of the hub's cache layout."""
    root = (folder.parent.parent if folder.parent.name == "snapshots" else folder).resolve()
    for path in (folder / name for name in names if os.path.lexists(folder / name)):
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError) as exc:
            raise ModelFileError(f"Cached model file {path} is a broken link. Delete it.") from exc
        if not real.is_relative_to(root):
            raise ModelFileError(f"Cached model file {path} links to a file outside the cache. Delete it.")


def _download(spec: ModelSpec, *, download: bool, progress: Sink | None) -> ModelFiles:
    from resift.models.download import download_model, is_offline

    next_step = "Download it once while online, or pass folder= with its files."
    if spec.package is not None:
        next_step = f"Run: {install_command('local')}, or pass folder= with its files."
    missing = f"The files of {spec.id!r} are not on this machine"
    if spec.hub is None:
        raise ModelFileError(f"{missing}. {next_step}")
    if not download or is_offline():
        reason = "downloads are switched off (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE)" if download else "download=False"
        raise ModelFileError(f"{missing}, and {reason}. {next_step}")
    folder = download_model(spec, download_folder(spec), progress=progress)
    return ModelFiles(spec=spec, folder=folder, source="hub")
