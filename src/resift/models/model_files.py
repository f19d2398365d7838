"""An allowed model together with the folder that holds its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from resift.models.allowlist import ModelSpec
from resift.models.verify import read_verified, verify

Source = Literal["folder", "local", "cache", "carrier", "hub"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """An allowed model and where its files were found."""

    spec: ModelSpec
    folder: Path
    source: Source = "folder"

    @property
    def onnx(self) -> Path:
        """Path of the graph, to show. Load from `onnx_bytes`: a path can change between check and use."""
        return self.folder / self.spec.onnx

    @property
    def tokenizer(self) -> Path:
        """Path of the tokenizer, to show. Load from `tokenizer_bytes`."""
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

    def verify(self, *, unread: bool = False) -> None:
        """Check every pinned file that is there; required ones must be.

        With unread=True only those that loading does not read, for callers that are about to load.
        """
        for pinned in self.spec.files:
            if unread and pinned.name in (self.spec.onnx, self.spec.tokenizer):
                continue
            path = self.folder / pinned.name
            if pinned.required or path.exists():
                verify(path, pinned)
