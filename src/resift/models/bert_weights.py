"""A file's weights laid out as the compiled code reads them: the structures of native/bert.h."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from typing import TYPE_CHECKING

from resift._internal.arrays import Array, np
from resift.models.bert_file import HEAD_SHAPES, LAYER_SHAPES, PANEL, BertFile
from resift.native.library import Kernel

if TYPE_CHECKING:
    from resift.models.onnx_graph import Array

_CACHE_LINE = 64

_BLOCK = 32 << 20
"""Bytes that are asked for at a time for packed weights; what is not used of them takes no memory."""


class Linear(Structure):
    """A linear layer with int8 weights."""

    _fields_ = (
        ("inputs", c_int32),
        ("outputs", c_int32),
        ("packed", c_void_p),
        ("sums", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
    )


class LayerNorm(Structure):
    """A layer normalisation."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p))


class Layer(Structure):
    """One layer of the encoder."""

    _fields_ = (
        ("qkv", Linear),
        ("attention_output", Linear),
        ("ffn_up", Linear),
        ("ffn_down", Linear),
        ("attention_norm", LayerNorm),
        ("ffn_norm", LayerNorm),
    )


class Embedding(Structure):
    """A table of quantised embeddings."""

    _fields_ = (("values", c_void_p), ("scale", c_float), ("zero_point", c_int32))


class Bert(Structure):
    """A whole model."""

    _fields_ = (
        ("hidden", c_int32),
        ("heads", c_int32),
        ("ffn", c_int32),
        ("layers", c_int32),
        ("attention_scale", c_float),
        ("scale_query_and_key", c_int32),
        ("word", Embedding),
        ("token_type", Embedding),
        ("position", c_void_p),
        ("embedding_norm", LayerNorm),
        ("layer", POINTER(Layer)),
        ("classes", c_int32),
        ("pooler", Linear),
        ("classifier", Linear),
    )


def aligned(size: int, dtype: str) -> Array:
    """Return an uninitialised array that begins at a cache line."""
    item = np.dtype(dtype).itemsize
    memory = np.empty(size * item + _CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % _CACHE_LINE
    return memory[start : start + size * item].view(dtype)


class _Room:
    """Memory for packed weights, in large blocks.

    numpy asks for huge pages there, so that a pass over all weights looks up a dozen pages, not thousands.
    """

    def __init__(self) -> None:
        self._free: Array = aligned(0, "int8")

    def take(self, size: int) -> Array:
        """Return so many bytes that begin at a cache line."""
        whole = -(-size // _CACHE_LINE) * _CACHE_LINE
        if whole > self._free.size:
            self._free = aligned(max(whole, _BLOCK), "int8")
        taken, self._free = self._free[:size], self._free[whole:]
        return taken


class BertWeights:
    """The structure `bert` for one kernel, and the memory that it points to."""

    def __init__(self, file: BertFile, kernel: Kernel) -> None:
        """Check and lay out every weight, or raise UnknownArchitectureError before C sees any."""
        self._file, self.sizes = file, file.sizes
        self._pack, self._packed_size = kernel.function("bert_pack"), kernel.function("bert_packed_size")
        self._pack.argtypes = (c_void_p, c_int32, c_int32, c_void_p, c_void_p)
        self._pack.restype = None
        self._packed_size.argtypes, self._packed_size.restype = (c_int32, c_int32), c_int64
        self._kept: list[Array] = []
        self._room = _Room()
        self.bert = self._bert()

    def _bert(self) -> Bert:
        sizes = self.sizes
        scale = np.float32(1) / np.sqrt(np.float32(sizes.head_width))
        bert = Bert(
            hidden=sizes.hidden,
            heads=sizes.hidden // sizes.head_width,
            ffn=sizes.ffn,
            layers=sizes.layers,
            attention_scale=float(np.sqrt(scale) if self._file.scales_query_and_key else scale),
            scale_query_and_key=self._file.scales_query_and_key,
            word=self._embedding("word_embeddings", sizes.words),
            token_type=self._embedding("token_type_embeddings", sizes.token_types),
            position=self._position(),
            embedding_norm=self._norm("embeddings.LayerNorm"),
            layer=(Layer * sizes.layers)(*(self._layer(f"encoder.layer.{n}.") for n in range(sizes.layers))),
            classes=sizes.classes,
        )
        if sizes.classes:
            bert.pooler, bert.classifier = (
                self._linear("", name, shapes=HEAD_SHAPES) for name in HEAD_SHAPES
            )
        return bert

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

    def _linear(
        self, prefix: str, *modules: str, shapes: dict[str, tuple[str, str]] = LAYER_SHAPES
    ) -> Linear:
        """Lay out one linear layer, or several with the same inputs side by side."""
        parts = [self._file.linear(prefix + module, shapes[module]) for module in modules]
        levels, scales, bias = (
            np.concatenate(part, axis=-1) if len(part) > 1 else part[0] for part in zip(*parts, strict=True)
        )
        # Outputs are filled up to whole panels with weights of 0.
        more = -levels.shape[1] % PANEL
        if more:
            levels = np.pad(levels, ((0, 0), (0, more)))
        levels = np.ascontiguousarray(levels)
        inputs, outputs = levels.shape
        packed, sums = self._room.take(self._packed_size(inputs, outputs)), np.empty(outputs, np.int32)
        self._pack(levels.ctypes.data, inputs, outputs, packed.ctypes.data, sums.ctypes.data)
        kept = (packed, sums, np.pad(scales, (0, more)), np.pad(bias, (0, more)))
        return Linear(inputs, outputs, *map(self._keep, kept))

    def _norm(self, name: str) -> LayerNorm:
        return LayerNorm(*map(self._keep, self._file.norm(name)))

    def _embedding(self, name: str, rows: int) -> Embedding:
        levels, scale, zero_point = self._file.embedding(name, rows)
        return Embedding(self._keep(levels), scale, zero_point)

    def _position(self) -> int:
        levels, scale, zero_point = self._file.embedding("position_embeddings", self.sizes.positions)
        return self._keep((levels.astype(np.int32) - zero_point).astype(np.float32) * np.float32(scale))

    def _keep(self, array: Array) -> int:
        # Views of a file's bytes may begin at any address; C reads whole numbers at theirs.
        whole = np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])
        self._kept.append(whole)
        return int(whole.ctypes.data)
