"""The forward pass in compiled code, for processors with AVX-512 VNNI; its numbers are the runtime's."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from resift.errors import require
from resift.models.bert_file import READING, BertFile, UnknownArchitectureError
from resift.models.native_code import PANEL, Bert, Dense, Layer, Norm, Table, native_code
from resift.models.onnx_wire import read_graph

_ALIGNED = 64


class NativeSession:
    """A loaded model that takes one row of tokens; several threads may run it at the same time."""

    def __init__(self, model: bytes) -> None:
        """Lay the weights out, or raise UnknownArchitectureError for the runtime to take over."""
        self._numpy = require("numpy", extra="local")
        self._code = native_code()
        if self._code is None:
            raise UnknownArchitectureError("no compiled code for this processor")
        try:
            self._weights = _Weights(BertFile(read_graph(model, self._numpy)), self._numpy, self._code)
        except READING as exc:
            raise UnknownArchitectureError(f"{type(exc).__name__}: {exc}") from exc
        self._own = threading.local()

    def run(self, ids: list[int], types: list[int]) -> Any:
        """Return the logits of one row, or the states of its tokens."""
        np, weights, rows = self._numpy, self._weights, len(ids)
        # The compiled code looks tokens up unchecked.
        if not 0 < rows <= weights.places or min(ids) < 0 or max(ids) >= weights.words:
            raise ValueError(f"a row of {rows} tokens, or an id, is out of this model's range")
        if len(types) != rows or min(types) < 0 or max(types) >= weights.kinds:
            raise ValueError("token types do not fit the row")
        bert = weights.bert
        tokens = np.array([ids, types], dtype=np.int32)
        out = np.empty(bert.classes or (rows, bert.hidden), dtype=np.float32)
        self._code.resift_forward(
            ctypes.addressof(bert),
            tokens.ctypes.data,
            tokens.ctypes.data + tokens.strides[0],
            rows,
            1 if bert.classes else rows,
            self._scratch(rows),
            out.ctypes.data,
        )
        return out

    def _scratch(self, rows: int) -> int:
        """Return the address of this thread's working memory, which grows with its longest row."""
        needed = self._code.resift_scratch(ctypes.addressof(self._weights.bert), rows)
        memory = getattr(self._own, "memory", None)
        if memory is None or memory.size < needed:
            memory = self._own.memory = aligned(self._numpy, needed, "float32")
        return int(memory.ctypes.data)


def aligned(np: Any, size: int, kind: str) -> Any:
    """Return an uninitialised array that begins at a cache line."""
    item = np.dtype(kind).itemsize
    memory = np.empty(size * item + _ALIGNED, np.uint8)
    start = -memory.ctypes.data % _ALIGNED
    return memory[start : start + size * item].view(kind)


class _Weights:
    """A file's weights laid out as the compiled code reads them; keeps their memory."""

    def __init__(self, file: BertFile, np: Any, code: Any) -> None:
        self._file, self._numpy, self._code = file, np, code
        self._kept: list[Any] = []
        self.places = self.words = self.kinds = 0
        self._require_sizes()
        self.bert = self._bert()

    def _require_sizes(self) -> None:
        file = self._file
        self._wide = self._quantised("encoder.layer.0.intermediate.dense")[0].shape[1]
        if file.head_width % 32 or file.hidden % PANEL or self._wide % PANEL:
            raise UnknownArchitectureError(f"sizes {file.hidden}, {self._wide}, {file.head_width}")

    def _bert(self) -> Bert:
        file, np = self._file, self._numpy
        root = np.float32(1) / np.sqrt(np.float32(file.head_width))
        words, self.words = self._table("word_embeddings")
        kinds, self.kinds = self._table("token_type_embeddings")
        layers = [self._layer(f"encoder.layer.{number}.") for number in range(file.layers)]
        bert = Bert(
            hidden=file.hidden,
            heads=file.hidden // file.head_width,
            wide=self._wide,
            layers=file.layers,
            factor=float(np.sqrt(root) if file.scales_both else root),
            on_each_side=file.scales_both,
            words=words,
            kinds=kinds,
            places=self._places(),
            embedded=self._norm("embeddings.LayerNorm"),
            layer=(Layer * file.layers)(*layers),
        )
        if file.classifies:
            bert.pool, bert.classify = self._dense("pooler.dense"), self._dense("classifier")
            bert.classes = self._quantised("classifier")[0].shape[1]
        return bert

    def _layer(self, name: str) -> Layer:
        asked = (f"{name}attention.self.{part}" for part in ("query", "key", "value"))
        return Layer(
            ask=self._dense(*asked),
            mix=self._dense(name + "attention.output.dense"),
            widen=self._dense(name + "intermediate.dense"),
            narrow=self._dense(name + "output.dense"),
            attended=self._norm(name + "attention.output.LayerNorm"),
            output=self._norm(name + "output.LayerNorm"),
        )

    def _dense(self, *modules: str) -> Dense:
        """Lay out one linear layer, or several with the same inputs side by side."""
        np = self._numpy
        parts = [self._padded(module) for module in modules]
        inputs = parts[0][0].shape[0]
        outputs = sum(levels.shape[1] for levels, _, _ in parts)
        packed, sums = aligned(np, inputs * outputs, "int8"), np.empty(outputs, np.int32)
        at = 0
        for levels, _, _ in parts:
            here = (packed[at * inputs :].ctypes.data, sums[at:].ctypes.data)
            self._code.resift_pack(levels.ctypes.data, inputs, levels.shape[1], *here)
            at += levels.shape[1]
        scales, biases = (np.concatenate([part[n] for part in parts]) for n in (1, 2))
        return Dense(inputs, outputs, *(self._keep(array) for array in (packed, sums, scales, biases)))

    def _padded(self, module: str) -> tuple[Any, Any, Any]:
        """Return levels, scales and biases of a linear layer, filled up with outputs of 0 to whole panels."""
        np, file = self._numpy, self._file
        levels, scale, zero = self._quantised(module)
        if levels.dtype != np.int8 or zero.any():
            raise UnknownArchitectureError("weights that are not symmetric")
        more = -levels.shape[1] % PANEL
        bias = (
            file.graph.weights["classifier.bias"] if module == "classifier" else file.weight(f"{module}.bias")
        )
        scales = np.broadcast_to(scale, levels.shape[1]).astype(np.float32)
        filled = np.ascontiguousarray(np.pad(levels, ((0, 0), (0, more))) if more else levels)
        return filled, np.pad(scales, (0, more)), np.pad(bias, (0, more))

    def _quantised(self, module: str) -> tuple[Any, Any, Any]:
        return self._file.quantised(self._file.base(module))

    def _norm(self, name: str) -> Norm:
        return Norm(*(self._keep(self._file.weight(f"{name}.{end}")) for end in ("weight", "bias")))

    def _table(self, name: str) -> tuple[Table, int]:
        levels, scale, zero = self._file.quantised(f"{self._file.prefix}embeddings.{name}.weight")
        if levels.dtype != self._numpy.uint8:
            raise UnknownArchitectureError("embeddings that are not unsigned")
        return Table(self._keep(levels), float(scale), int(zero)), levels.shape[0]

    def _places(self) -> int:
        table = self._file.dequantised("embeddings.position_embeddings.weight")
        self.places = table.shape[0]
        return self._keep(table)

    def _keep(self, array: Any) -> int:
        whole = self._numpy.ascontiguousarray(array)
        self._kept.append(whole)
        return int(whole.ctypes.data)
