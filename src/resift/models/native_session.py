"""The forward pass in compiled code: the same bits from every kernel, on every processor."""

from __future__ import annotations

import ctypes
import threading
from ctypes import c_int32, c_int64, c_void_p

from resift._internal.arrays import Array, np
from resift.models.bert_file import BertFile, UnknownArchitectureError
from resift.models.bert_weights import BertWeights, aligned
from resift.models.onnx_graph import read_graph
from resift.native.library import Kernel, native_kernel


class _Scratch(threading.local):
    """Working memory of each thread, so that rows are computed side by side."""

    memory: Array | None = None


class NativeSession:
    """A loaded model that takes one row of tokens; several threads may run it at the same time."""

    def __init__(self, model: bytes, *, kernel: Kernel | None = None) -> None:
        """Lay the weights out, or raise UnknownArchitectureError for the runtime to take over."""
        kernel = kernel or native_kernel()
        if kernel.name is None:
            raise UnknownArchitectureError("; ".join(filter(None, (kernel.reason, kernel.fix))))
        self.kernel = kernel.name
        self._weights = BertWeights(BertFile(read_graph(model)), kernel)
        self._forward, self._scratch_size = kernel.function("bert_forward"), kernel.function("bert_scratch")
        self._forward.argtypes = (c_void_p, c_void_p, c_void_p, c_int32, c_int32, c_void_p, c_void_p)
        self._forward.restype = None
        self._scratch_size.argtypes, self._scratch_size.restype = (c_void_p, c_int32), c_int64
        self._own = _Scratch()

    def run(self, ids: list[int], types: list[int], *, first: int | None = None) -> Array:
        """Return the logits of one row, or the states of its tokens; with `first` only of so many tokens."""
        weights, tokens = self._weights, len(ids)
        sizes, bert = weights.sizes, weights.bert
        # The compiled code looks tokens up unchecked.
        if not 0 < tokens <= sizes.positions or min(ids) < 0 or max(ids) >= sizes.words:
            raise ValueError(f"a row of {tokens} tokens, or an id, is out of this model's range")
        if len(types) != tokens or min(types) < 0 or max(types) >= sizes.token_types:
            raise ValueError("token types do not fit the row")
        # A classifier reads only the first token's state: the last layer computes no other.
        wanted = 1 if bert.classes else min(first or tokens, tokens)
        rows = np.array([ids, types], dtype=np.int32)
        out = np.empty(bert.classes or (wanted, bert.hidden), dtype=np.float32)
        self._forward(
            ctypes.addressof(bert),
            rows.ctypes.data,
            rows.ctypes.data + rows.strides[0],
            tokens,
            wanted,
            self._scratch(tokens),
            out.ctypes.data,
        )
        return out

    def _scratch(self, tokens: int) -> int:
        """Return the address of this thread's working memory, which grows with its longest row."""
        needed = self._scratch_size(ctypes.addressof(self._weights.bert), tokens)
        memory = self._own.memory
        if memory is None or memory.size < needed:
            memory = self._own.memory = aligned(needed, "float32")
        return int(memory.ctypes.data)
