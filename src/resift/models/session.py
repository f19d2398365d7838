"""Forward passes for one row of tokens: in the native engine or, for other ONNX files, in ONNX Runtime."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import stat
import threading
from collections.abc import Callable
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from resift._internal.arrays import Array, np
from resift._internal.files import atomic_file, cache_folder, file_lock
from resift.errors import ModelFileError, ModelLoadError, ResiftError, require
from resift.models import packed_weights as packing
from resift.models.onnx_bert import HEAD_SHAPES, LAYER_SHAPES, PANEL, OnnxBert, UnknownArchitectureError
from resift.models.onnx_reader import read_graph
from resift.models.packed_weights import LinearStruct, NormStruct, PackedWeights, struct_fields
from resift.models.registry import ModelFiles
from resift.native.library import Kernel, native_kernel

if TYPE_CHECKING:
    from resift.models.hf_folder import ModelFolder

log = logging.getLogger("resift.models")


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
        pointer, size = c_void_p, c_int32
        self._forward = kernel.function("bert_forward", None, pointer, pointer, pointer, size, size, pointer, pointer)
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
        self._memory = packing.allocate_aligned(0, "float32")

    def address(self, model: Structure, tokens: int) -> int:
        """Return the address of this thread's memory, large enough for a row of `tokens` tokens."""
        needed = self._floats_needed(ctypes.addressof(model), tokens)
        if self._memory.size < needed:
            self._memory = packing.allocate_aligned(needed, "float32")
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


BLOCK_BYTES = 32 << 20  # size of the blocks for packed weights. Pages that are never written take no memory.


class WeightArena:
    """Memory for packed weights in large blocks, for which numpy requests huge pages."""

    def __init__(self) -> None:
        self._free: Array = packing.allocate_aligned(0, "int8")

    def take(self, size: int) -> Array:
        """Return an array of `size` bytes that starts on a cache line."""
        padded = packing.round_up(size, packing.ALIGNMENT)
        if padded > self._free.size:
            self._free = packing.allocate_aligned(max(padded, BLOCK_BYTES), "int8")
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
            self.bert.pooler, self.bert.classifier = (self._linear("", n, shapes=HEAD_SHAPES) for n in HEAD_SHAPES)

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


# --- Models with safetensors weights ------------------------------------------------------------------------
#
# The weights are packed once per model, kernel and precision. A packed file is named after the digests of its source
# files, contains its own checksum and is memory-mapped. It is used only if no other user can write to it.


class TransformerSession:
    """A loaded network; several threads may run it at the same time."""

    def __init__(self, packed: PackedWeights, kernel: Kernel) -> None:
        self.kernel = kernel.name
        self._packed = packed  # keeps the memory alive that the structure points to
        self._struct = packing.build_struct(packed)
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
        out = np.empty(packing.round_up(self.outputs, PANEL) if pooled else rows * struct.width, np.float32)
        embedded = self._embed(ids, types)
        scratch = self._scratch.address(struct, tokens)
        self._forward(ctypes.addressof(struct), embedded.ctypes.data, tokens, rows, scratch, out.ctypes.data)
        return out[: self.outputs] if pooled else out.reshape(rows, struct.width)[:, : self._width]

    def _embed(self, ids: list[int], types: list[int]) -> Array:
        """Return the sum of word, position and token type embeddings, padded to whole panels."""
        embedded = packing.to_float32(self._word[ids])
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


def _load_or_pack(files: ModelFiles, kernel: Kernel, precision: packing.Precision) -> PackedWeights:
    pins = "\n".join(f"{pinned.sha256} {pinned.name}" for pinned in sorted(files.spec.files))
    # A library that was built from other sources may pack in another layout, of another size.
    size = kernel.function("transformer_packed_size", c_int64, c_int32, c_int32)(PANEL, PANEL)
    key = hashlib.sha256(f"{packing.LAYOUT} {kernel.name} {size} {precision}\n{pins}".encode()).hexdigest()
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
                    packing.save_packed(packing.pack_network(folder.network, kernel, precision), file)
                path.chmod(0o600)
                packed = _load_existing(path)
    except (OSError, ResiftError) as exc:
        log.debug("packed weights are not cached: %s", exc)
        packed = None
    # Without a writable cache, the packed weights stay in this process's memory.
    return packed or packing.pack_network(folder.network, kernel, precision)


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
        return packing.load_packed(path)
    except (ModelFileError, OSError) as exc:
        log.warning("packing the weights again: %s", exc)
        return None


def _read_folder(files: ModelFiles) -> ModelFolder:
    """Read the folder of a pinned model after checking every file against its pin."""
    from resift.models.hf_folder import read_model_folder

    files.verify()
    pinned = {file.name for file in files.spec.files}

    def read(name: str) -> bytes:
        return files.read(name) if name in pinned else (files.folder / name).read_bytes()

    return read_model_folder(files.folder, read=read, only=pinned)
