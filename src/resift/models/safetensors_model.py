"""Sessions for models with safetensors weights, which are packed once per model, kernel and precision.

A packed file is named after the digests of its source files and contains its own checksum. It is
memory-mapped. It is used only if the current user owns it and no other user can write to it.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import stat
from ctypes import c_int32, c_int64, c_void_p
from pathlib import Path

from resift._internal.arrays import Array, np
from resift._internal.files import atomic_file, cache_folder, file_lock
from resift.errors import ModelFileError, ModelLoadError, ResiftError
from resift.models.hf_folder import ModelFolder, read_model_folder
from resift.models.packed_weights import (
    LAYOUT,
    PANEL,
    PackedWeights,
    Precision,
    build_struct,
    load_packed,
    pack_network,
    round_up,
    save_packed,
    to_float32,
)
from resift.models.registry import ModelFiles
from resift.models.session import Scratch, Session
from resift.native.library import Kernel, native_kernel

log = logging.getLogger("resift.models")


class TransformerSession:
    """A loaded network; several threads may run it at the same time."""

    def __init__(self, packed: PackedWeights, kernel: Kernel) -> None:
        self.kernel = kernel.name
        self._packed = packed  # keeps the memory alive that the structure points to
        self._struct = build_struct(packed)
        pointer, number = c_void_p, c_int32
        self._forward = kernel.function("transformer_forward", None, pointer, pointer, number, number, pointer, pointer)
        self._scratch = Scratch(kernel.function("transformer_scratch", c_int64, c_void_p, c_int32))
        arrays = packed.arrays
        self._word, self._position = arrays["word"], arrays.get("position")
        self._token_type = arrays.get("token_type")
        description = packed.description
        self._offset, self.positions = description["position_offset"], description["positions"]
        self.outputs, self._width = description["outputs"], description["true_width"]

    def run(self, ids: list[int], types: list[int], *, first: int | None = None) -> Array:
        """Return the head's outputs or the pooled state; without pooling, the states of the first `first` tokens."""
        tokens = len(ids)
        if not 0 < tokens <= self.positions or min(ids) < 0 or max(ids) >= self._word.shape[0]:
            raise ValueError(f"a row of {tokens} tokens, or one of its ids, is out of this model's range")
        struct = self._struct
        rows = min(first or tokens, tokens)
        pooled = struct.pooling != 0
        # The C code writes whole panels; the padding is cut off here.
        out = np.empty(round_up(self.outputs, PANEL) if pooled else rows * struct.width, np.float32)
        embedded = self._embed(ids, types)
        scratch = self._scratch.address(struct, tokens)
        self._forward(ctypes.addressof(struct), embedded.ctypes.data, tokens, rows, scratch, out.ctypes.data)
        return out[: self.outputs] if pooled else out.reshape(rows, struct.width)[:, : self._width]

    def _embed(self, ids: list[int], types: list[int]) -> Array:
        """Return the sum of word, position and token type embeddings, padded to whole panels."""
        embedded = to_float32(self._word[ids])
        if self._token_type is not None:
            # RoBERTa has a single token type, regardless of the tokenizer's template.
            embedded = embedded + self._token_type[types if len(self._token_type) > 1 else 0]
        if self._position is not None:
            embedded = embedded + self._position[self._offset : self._offset + len(ids)]
        missing = -embedded.shape[1] % PANEL
        return np.pad(embedded, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(embedded)


class StaticSession:
    """A static embedder: the mean of the rows of a token table."""

    def __init__(self, table: Array) -> None:
        self._table = table

    def run(self, ids: list[int], types: list[int], *, first: int | None = None) -> Array:
        """Return the mean vector of the tokens; `types` and `first` are ignored."""
        if not ids:  # a text without known tokens
            return np.zeros(self._table.shape[1], np.float32)
        if max(ids) >= len(self._table) or min(ids) < 0:
            raise ValueError("a token id is out of this model's range")
        # Summed in double precision, so that the result does not depend on the processor's vector width.
        return np.asarray(self._table[ids].sum(axis=0, dtype=np.float64) / len(ids), np.float32)


def open_safetensors(files: ModelFiles) -> Session:
    """Return a session for verified files; pack the weights if no packed file exists yet."""
    spec = files.spec
    if spec.is_static:
        table = _read_folder(files).table
        if table is None:
            raise ModelFileError(f"{spec.id!r} has no token table.")
        return StaticSession(table)
    kernel = native_kernel()
    if kernel.name is None:
        reason = "; ".join(filter(None, (kernel.reason, kernel.fix)))
        raise ModelLoadError(f"{spec.id!r} needs Resift's native engine: {reason}.")
    return TransformerSession(_load_or_pack(files, kernel, spec.precision), kernel)


def _load_or_pack(files: ModelFiles, kernel: Kernel, precision: Precision) -> PackedWeights:
    pins = "\n".join(f"{pinned.sha256} {pinned.name}" for pinned in sorted(files.spec.files))
    # A library that was built from other sources may pack in another layout, of another size.
    size = kernel.function("transformer_packed_size", c_int64, c_int32, c_int32)(PANEL, PANEL)
    key = hashlib.sha256(f"{LAYOUT} {kernel.name} {size} {precision}\n{pins}".encode()).hexdigest()
    path = cache_folder("models") / "packed" / f"{key[:40]}.resift"
    packed = _load_existing(path)
    if packed is not None:
        return packed
    folder = _read_folder(files)
    if folder.network is None:
        raise ModelFileError(f"{files.spec.id!r} has no network to pack.")
    try:
        # One process packs; the others wait and then map the file.
        with file_lock(path.with_suffix(".lock"), error=ModelFileError):
            packed = _load_existing(path)
            if packed is None:
                with atomic_file(path) as file:
                    save_packed(pack_network(folder.network, kernel, precision), file)
                path.chmod(0o600)
                packed = _load_existing(path)
    except (OSError, ResiftError) as exc:
        log.debug("packed weights are not cached: %s", exc)
        packed = None
    # Without a writable cache, the packed weights stay in this process's memory.
    return packed or pack_network(folder.network, kernel, precision)


def _load_existing(path: Path) -> PackedWeights | None:
    """Return the packed weights at a path, or None if the file is missing, damaged or not trusted."""
    try:
        status = path.lstat()
    except OSError:
        return None
    is_untrusted = hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022)
    if is_untrusted or not stat.S_ISREG(status.st_mode):
        log.warning("packed weights at %s are ignored: another user can write to them", path)
        return None
    try:
        return load_packed(path)
    except (ModelFileError, OSError) as exc:
        log.warning("packing the weights again: %s", exc)
        return None


def _read_folder(files: ModelFiles) -> ModelFolder:
    """Read the folder of a pinned model after checking every file against its pin."""
    files.verify()
    pinned = {file.name for file in files.spec.files}

    def read(name: str) -> bytes:
        return files.read(name) if name in pinned else (files.folder / name).read_bytes()

    return read_model_folder(files.folder, read=read, only=pinned)
