"""Forward passes of packed networks on the native engine, one text at a time on the calling thread."""

from __future__ import annotations

import ctypes
import threading
from ctypes import c_int32, c_int64, c_void_p

from resift._internal.arrays import Array, np
from resift.models.packed_weights import PANEL, PackedWeights, build_struct, round_up, to_float32
from resift.native.library import Kernel


class _Scratch(threading.local):
    """Working memory of one thread."""

    memory: Array | None = None


class TransformerSession:
    """A loaded network; several threads may run it at the same time."""

    def __init__(self, packed: PackedWeights, kernel: Kernel) -> None:
        self.kernel = kernel.name
        self._packed = packed  # keeps the memory that the structure points to
        self._struct = build_struct(packed)
        self._forward = kernel.function("transformer_forward")
        self._forward.argtypes = (c_void_p, c_void_p, c_int32, c_int32, c_void_p, c_void_p)
        self._forward.restype = None
        self._scratch_size = kernel.function("transformer_scratch")
        self._scratch_size.argtypes, self._scratch_size.restype = (c_void_p, c_int32), c_int64
        self._thread = _Scratch()
        arrays = packed.arrays
        self._word, self._position = arrays["word"], arrays.get("position")
        self._token_type = arrays.get("token_type")
        about = packed.description
        self._offset, self.positions = about["position_offset"], about["positions"]
        self.outputs, self._width = about["outputs"], about["true_width"]

    def run(self, ids: list[int], types: list[int], *, first: int | None = None) -> Array:
        """Return the head's outputs or the pooled state; without pooling, the states of the first tokens."""
        tokens = len(ids)
        if not 0 < tokens <= self.positions or min(ids) < 0 or max(ids) >= self._word.shape[0]:
            raise ValueError(f"a row of {tokens} tokens, or one of its ids, is out of this model's range")
        struct = self._struct
        wanted = min(first or tokens, tokens)
        pooled = struct.pooling != 0
        # The C code writes whole panels; what fills them up is cut off here.
        out = np.empty(round_up(self.outputs, PANEL) if pooled else wanted * struct.width, np.float32)
        embedded = self._embed(ids, types)
        self._forward(
            ctypes.addressof(struct),
            embedded.ctypes.data,
            tokens,
            wanted,
            self._scratch(tokens),
            out.ctypes.data,
        )
        return out[: self.outputs] if pooled else out.reshape(wanted, struct.width)[:, : self._width]

    def _embed(self, ids: list[int], types: list[int]) -> Array:
        """Return the sum of word, position and token type embeddings, filled up to whole panels."""
        embedded = to_float32(self._word[ids])
        if self._token_type is not None:
            embedded = embedded + self._token_type[types]
        if self._position is not None:
            embedded = embedded + self._position[self._offset : self._offset + len(ids)]
        missing = -embedded.shape[1] % PANEL
        return np.pad(embedded, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(embedded)

    def _scratch(self, tokens: int) -> int:
        """Return the address of this thread's working memory, which grows with its longest text."""
        needed = self._scratch_size(ctypes.addressof(self._struct), tokens) + PANEL
        memory = self._thread.memory
        if memory is None or memory.size < needed:
            memory = self._thread.memory = np.empty(needed, np.float32)
        return int(memory.ctypes.data) + (-int(memory.ctypes.data)) % 64
