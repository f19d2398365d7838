"""Forward passes for one row of tokens, in the native engine or, for other ONNX files, in ONNX Runtime."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from types import ModuleType
from typing import Protocol

from resift._internal.arrays import Array, np
from resift.errors import ModelLoadError, require
from resift.models.onnx_bert import HEAD_SHAPES, LAYER_SHAPES, PANEL, OnnxBert, UnknownArchitectureError
from resift.models.onnx_reader import read_graph
from resift.models.packed_weights import ALIGNMENT, LinearStruct, NormStruct, allocate_aligned, round_up, struct_fields
from resift.native.library import Kernel, native_kernel


class Session(Protocol):
    """A loaded model. Several threads may run it at the same time."""

    def run(self, ids: list[int], types: list[int], *, first: int | None = None) -> Array:
        """Return the logits of one row, or its token states; with `first`, only those of the first tokens."""


class NativeSession:
    """A BERT in the native engine; results are bit-identical across kernels and processors."""

    def __init__(self, model: bytes, *, kernel: Kernel | None = None) -> None:
        """Pack the weights; raise UnknownArchitectureError for a file that needs ONNX Runtime."""
        kernel = kernel or native_kernel()
        if kernel.name is None:
            raise UnknownArchitectureError("; ".join(filter(None, (kernel.reason, kernel.fix))))
        self.kernel = kernel.name
        self._weights = PackedBert(OnnxBert(read_graph(model)), kernel)
        pointer, number = c_void_p, c_int32
        self._forward = kernel.function(
            "bert_forward", None, pointer, pointer, pointer, number, number, pointer, pointer
        )
        self._scratch = Scratch(kernel.function("bert_scratch", c_int64, c_void_p, c_int32))

    def run(self, ids: list[int], types: list[int], *, first: int | None = None) -> Array:
        """Return the logits of one row, or its token states; with `first`, only those of the first tokens."""
        weights, tokens = self._weights, len(ids)
        sizes, bert = weights.sizes, weights.bert
        # The C code does not check bounds.
        if not 0 < tokens <= sizes.positions or min(ids) < 0 or max(ids) >= sizes.words:
            raise ValueError(f"a row of {tokens} tokens, or a token id, is out of this model's range")
        if len(types) != tokens or min(types) < 0 or max(types) >= sizes.token_types:
            raise ValueError("token types do not match the row")
        # A classifier uses only the first token's state, so the last layer computes no other.
        rows = 1 if bert.classes else min(first or tokens, tokens)
        inputs = np.array([ids, types], dtype=np.int32)
        out = np.empty(bert.classes or (rows, bert.hidden), dtype=np.float32)
        self._forward(
            ctypes.addressof(bert),
            inputs.ctypes.data,
            inputs.ctypes.data + inputs.strides[0],
            tokens,
            rows,
            self._scratch.address(bert, tokens),
            out.ctypes.data,
        )
        return out


class Scratch(threading.local):
    """Working memory for a model's runs. Each thread has its own, which grows with the longest row."""

    def __init__(self, floats_needed: Callable[[int, int], int]) -> None:
        self._floats_needed = floats_needed
        self._memory = allocate_aligned(0, "float32")

    def address(self, model: Structure, tokens: int) -> int:
        """Return the address of this thread's memory, large enough for a row of `tokens` tokens."""
        needed = self._floats_needed(ctypes.addressof(model), tokens)
        if self._memory.size < needed:
            self._memory = allocate_aligned(needed, "float32")
        return int(self._memory.ctypes.data)


class OnnxSession:
    """A graph in ONNX Runtime, with one thread per run."""

    def __init__(self, model: bytes) -> None:
        runtime = onnx_runtime()
        options = runtime.SessionOptions()
        # One thread per run avoids a thread pool, which would spin, not survive a fork, and make runs wait.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        try:
            self._session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        # The runtime's exception types cannot be named without importing it.
        except Exception as exc:
            raise ModelLoadError(f"ONNX Runtime rejects the graph: {type(exc).__name__}: {exc}") from exc
        self._inputs = {node.name for node in self._session.get_inputs()}
        self._output = [self._session.get_outputs()[0].name]

    def run(self, ids: list[int], types: list[int], *, first: int | None = None) -> Array:
        """Return the graph's first output for one row, without the batch dimension."""
        row = np.array([ids], dtype=np.int64)
        feeds = {"input_ids": row}
        if "attention_mask" in self._inputs:
            feeds["attention_mask"] = np.ones_like(row)
        if "token_type_ids" in self._inputs:
            feeds["token_type_ids"] = np.array([types], dtype=np.int64)
        output: Array = self._session.run(self._output, feeds)[0][0]
        return output[:first] if output.ndim > 1 else output


def onnx_runtime() -> ModuleType:
    """Import ONNX Runtime with telemetry disabled, unless the environment overrides it."""
    # Version 1.31 writes an id to the temporary folder and reports to its vendor on import.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return require("onnxruntime", extra="onnx")


# --- Packed weights: the structures in native/bert.h --------------------------------------------------------


class Layer(Structure):
    """One encoder layer."""

    _fields_ = (
        *struct_fields(LinearStruct, "qkv attention_output ffn_up ffn_down"),
        *struct_fields(NormStruct, "attention_norm ffn_norm"),
    )


class Embedding(Structure):
    """A table of quantized embeddings."""

    _fields_ = (("values", c_void_p), ("scale", c_float), ("zero_point", c_int32))


class Bert(Structure):
    """A complete model."""

    _fields_ = (
        *struct_fields(c_int32, "hidden heads ffn layers"),
        ("attention_scale", c_float),
        ("scale_query_and_key", c_int32),
        *struct_fields(Embedding, "word token_type"),
        ("position", c_void_p),
        ("embedding_norm", NormStruct),
        ("layer", POINTER(Layer)),
        ("classes", c_int32),
        *struct_fields(LinearStruct, "pooler classifier"),
    )


BLOCK_BYTES = 32 << 20
"""Size of the blocks for packed weights. Pages that are never written take no memory."""


class WeightArena:
    """Memory for packed weights, in large blocks.

    numpy requests huge pages for such blocks, so a pass over all weights touches a dozen pages, not thousands.
    """

    def __init__(self) -> None:
        self._free: Array = allocate_aligned(0, "int8")

    def take(self, size: int) -> Array:
        """Return an array of `size` bytes that starts on a cache line."""
        padded = round_up(size, ALIGNMENT)
        if padded > self._free.size:
            self._free = allocate_aligned(max(padded, BLOCK_BYTES), "int8")
        block, self._free = self._free[:size], self._free[padded:]
        return block


class PackedBert:
    """The C structure `Bert` for one kernel, and the memory it points to."""

    def __init__(self, file: OnnxBert, kernel: Kernel) -> None:
        """Check and pack all weights; raise UnknownArchitectureError before any reach the C code."""
        self._file, self.sizes = file, file.sizes
        self._pack = kernel.function("bert_pack", None, c_void_p, c_int32, c_int32, c_void_p, c_void_p)
        self._packed_size = kernel.function("bert_packed_size", c_int64, c_int32, c_int32)
        self._arrays: list[Array] = []
        self._arena = WeightArena()
        sizes = self.sizes
        scale = np.float32(1) / np.sqrt(np.float32(sizes.head_width))
        values, position_scale, zero_point = file.embedding("position_embeddings", sizes.positions)
        positions = (values.astype(np.int32) - zero_point).astype(np.float32) * np.float32(position_scale)
        self.bert = Bert(
            hidden=sizes.hidden,
            heads=sizes.hidden // sizes.head_width,
            ffn=sizes.ffn,
            layers=sizes.layers,
            attention_scale=float(np.sqrt(scale) if file.scales_query_and_key else scale),
            scale_query_and_key=file.scales_query_and_key,
            word=self._embedding("word_embeddings", sizes.words),
            token_type=self._embedding("token_type_embeddings", sizes.token_types),
            position=self._address(positions),
            embedding_norm=self._norm("embeddings.LayerNorm"),
            layer=(Layer * sizes.layers)(*(self._layer(f"encoder.layer.{n}.") for n in range(sizes.layers))),
            classes=sizes.classes,
        )
        if sizes.classes:
            self.bert.pooler, self.bert.classifier = (
                self._linear("", name, shapes=HEAD_SHAPES) for name in HEAD_SHAPES
            )

    def _layer(self, prefix: str) -> Layer:
        query, key, value, attention_output, ffn_up, ffn_down = LAYER_SHAPES
        return Layer(
            qkv=self._linear(prefix, query, key, value),
            attention_output=self._linear(prefix, attention_output),
            ffn_up=self._linear(prefix, ffn_up),
            ffn_down=self._linear(prefix, ffn_down),
            attention_norm=self._norm(prefix + "attention.output.LayerNorm"),
            ffn_norm=self._norm(prefix + "output.LayerNorm"),
        )

    def _linear(self, prefix: str, *modules: str, shapes: dict[str, tuple[str, str]] = LAYER_SHAPES) -> LinearStruct:
        """Pack one linear module, or several modules with the same inputs side by side."""
        parts = [self._file.linear(prefix + module, shapes[module]) for module in modules]
        weights, scales, bias = (
            np.concatenate(part, axis=-1) if len(part) > 1 else part[0] for part in zip(*parts, strict=True)
        )
        # Outputs are padded to whole panels with zero weights.
        padding = -weights.shape[1] % PANEL
        if padding:
            weights = np.pad(weights, ((0, 0), (0, padding)))
        weights = np.ascontiguousarray(weights)
        inputs, outputs = weights.shape
        packed, sums = self._arena.take(self._packed_size(inputs, outputs)), np.empty(outputs, np.int32)
        self._pack(weights.ctypes.data, inputs, outputs, packed.ctypes.data, sums.ctypes.data)
        arrays = (packed, sums, np.pad(scales, (0, padding)), np.pad(bias, (0, padding)))
        return LinearStruct(inputs, outputs, *map(self._address, arrays))

    def _norm(self, name: str) -> NormStruct:
        return NormStruct(*map(self._address, self._file.norm(name)))

    def _embedding(self, name: str, rows: int) -> Embedding:
        values, scale, zero_point = self._file.embedding(name, rows)
        return Embedding(self._address(values), scale, zero_point)

    def _address(self, array: Array) -> int:
        """Keep an array alive and return its address."""
        # Views of a file's bytes may be unaligned.
        aligned = np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])
        self._arrays.append(aligned)
        return int(aligned.ctypes.data)
