"""Weights of a `Network` in the memory layout of the native engine: the structures in native/transformer.h.

One file per model, kernel and precision is memory-mapped, so processes share its pages.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from resift._internal.arrays import Array, np
from resift.errors import ModelFileError
from resift.models.network import Dense, Network, NetworkLayer, Norm
from resift.native.library import Kernel
from resift.types import JsonObject

Precision = Literal["int8", "fp32"]

LAYOUT = 4  # version of the packed layout; packed file names depend on it

MIN_INT8_INPUTS = 128
"""Layers with fewer inputs stay in fp32, because few rounding errors do not cancel out and int8 saves little."""

PANEL = 64
ALIGNMENT = 64  # arrays start on a cache line

_MAGIC = b"RESIFTPK"
_ACTIVATIONS = {"none": 0, "gelu": 1, "gelu_tanh": 2, "relu": 3, "tanh": 4}
_POOLINGS = {"none": 0, "first": 1, "mean": 2, "last": 3}
_LINEAR_STEP, _NORM_STEP, _ACTIVATION_STEP = 0, 1, 2


def struct_fields(ctype: type, names: str) -> list[tuple[str, type]]:
    """Return structure fields of the same type for names separated by spaces."""
    return [(name, ctype) for name in names.split()]


class LinearStruct(Structure):
    """`Linear` in native/bert.h."""

    _fields_ = (*struct_fields(c_int32, "inputs outputs"), *struct_fields(c_void_p, "packed sums scales bias"))


class NormStruct(Structure):
    """`LayerNorm` in native/bert.h."""

    _fields_ = struct_fields(c_void_p, "weight bias")


class LayerStruct(Structure):
    """`TransformerLayer` in native/transformer.h."""

    _fields_ = (
        *struct_fields(LinearStruct, "qkv attention_output ffn_up ffn_down"),
        *struct_fields(NormStruct, "attention_norm ffn_norm"),
        ("window", c_int32),
        *struct_fields(c_void_p, "cosines sines"),
    )


class HeadStepStruct(Structure):
    """`HeadStep` in native/transformer.h."""

    _fields_ = (
        *struct_fields(c_int32, "kind activation"),
        ("linear", LinearStruct),
        ("norm", NormStruct),
        ("norm_width", c_int32),
        ("norm_epsilon", c_float),
    )


class TransformerStruct(Structure):
    """`Transformer` in native/transformer.h."""

    _fields_ = (
        *struct_fields(c_int32, "input_width true_input_width width true_width heads head_width inner ffn layers"),
        *struct_fields(c_int32, "pre_norm gated activation pooling"),
        *struct_fields(c_float, "attention_scale epsilon"),
        *struct_fields(NormStruct, "embedding_norm final_norm"),
        ("projection", LinearStruct),
        ("layer", POINTER(LayerStruct)),
        *struct_fields(c_int32, "head_steps outputs"),
        ("head", POINTER(HeadStepStruct)),
    )


@dataclass(frozen=True, slots=True, repr=False)
class PackedWeights:
    """Arrays by name, and the fields of `TransformerStruct`, the input widths of layers and the steps of the head."""

    description: JsonObject
    arrays: dict[str, Array]


def pack_network(network: Network, kernel: Kernel, precision: Precision) -> PackedWeights:
    """Pack all weights of a network for one kernel."""
    packer = _Packer(network, kernel, precision)
    return PackedWeights(packer.pack(), packer.arrays)


class _Packer:
    """Collects the arrays of one network. Widths are padded with zeros to whole panels."""

    def __init__(self, network: Network, kernel: Kernel, precision: Precision) -> None:
        self.network = network
        self.precision = precision
        self.arrays: dict[str, Array] = {}
        self.inputs: dict[str, int] = {}
        self._pack = kernel.function("transformer_pack", None, c_void_p, c_int32, c_int32, c_void_p, c_void_p)
        self._packed_size = kernel.function("transformer_packed_size", c_int64, c_int32, c_int32)
        self._pack_floats = kernel.function("transformer_pack_floats", None, c_void_p, c_int32, c_int32, c_void_p)

    def pack(self) -> JsonObject:
        net = self.network
        # Rotary positions pair the two halves of a head, so each half is padded separately.
        self.head_parts = 2 if any(layer.rope_theta is not None for layer in net.layers) else 1
        head_width = round_up(net.head_width, 32)
        if self.head_parts == 2:
            head_width = 2 * round_up(net.head_width // 2, 16)
        embedding_width = net.word.shape[1]
        width, inner = round_up(net.hidden, PANEL), round_up(net.heads * head_width, PANEL)
        ffn = round_up(net.ffn, PANEL)
        self.arrays["word"] = net.word  # in the float type of the file; rows are converted on lookup
        if net.position is not None:
            self.arrays["position"] = to_float32(net.position)
        if net.token_type is not None:
            self.arrays["token_type"] = to_float32(net.token_type)
        if net.embedding_norm is not None:
            self._pack_norm("embedding_norm", net.embedding_norm, round_up(embedding_width, PANEL))
        if net.projection is not None:
            self._pack_linear("projection", net.projection)
        for i, layer in enumerate(net.layers):
            self._pack_layer(f"layer.{i}", layer, width=width, head_width=head_width, inner=inner, ffn=ffn)
        if net.final_norm is not None:
            self._pack_norm("final_norm", net.final_norm, width)
        head: list[JsonObject] = []
        outputs = net.hidden
        for i, step in enumerate(net.head):
            if isinstance(step, Dense):
                self._pack_linear(f"head.{i}", step, precision="fp32")
                outputs = step.weight.shape[0]
                head.append({"kind": _LINEAR_STEP})
            elif isinstance(step, Norm):
                self._pack_norm(f"head.{i}", step, round_up(step.weight.size, PANEL))
                epsilon = net.epsilon if step.epsilon is None else step.epsilon
                head.append({"kind": _NORM_STEP, "norm_width": step.weight.size, "norm_epsilon": epsilon})
            else:
                head.append({"kind": _ACTIVATION_STEP, "activation": _ACTIVATIONS[step]})
        return {
            "input_width": round_up(embedding_width, PANEL),
            "true_input_width": embedding_width,
            "true_width": net.hidden,
            "width": width,
            "heads": net.heads,
            "head_width": head_width,
            "inner": inner,
            "ffn": ffn,
            "layers": len(net.layers),
            "pre_norm": int(net.pre_norm),
            "gated": int(net.gated),
            "activation": _ACTIVATIONS[net.activation],
            "pooling": _POOLINGS[net.pooling],
            "attention_scale": 1 / math.sqrt(net.head_width),
            "epsilon": net.epsilon,
            "position_offset": net.position_offset,
            "windows": [layer.window for layer in net.layers],
            "rope": [None if layer.rope_theta is None else f"rope.{layer.rope_theta!r}" for layer in net.layers],
            "positions": net.positions,
            "inputs": self.inputs,
            "head": head,
            "head_steps": len(head),
            "outputs": outputs,
        }

    def _pack_layer(self, name: str, layer: NetworkLayer, *, width: int, head_width: int, inner: int, ffn: int) -> None:
        net = self.network
        heads, true_head, parts = net.heads, net.head_width, self.head_parts

        def split_heads(array: Array, count: int) -> Array:
            """Pad the rows of each head, then the rows of all heads together: [count * inner, …]."""
            rest = array.shape[1:]
            split = array.reshape(count, heads, parts, true_head // parts, *rest)
            split = _pad(split, 3, head_width // parts).reshape(count, heads * head_width, *rest)
            return _pad(split, 1, inner).reshape(count * inner, *rest)

        qkv_weight, qkv_bias = _dense_arrays(layer.qkv)
        output_weight, output_bias = _dense_arrays(layer.attention_output)
        up_weight, up_bias = _dense_arrays(layer.ffn_up)
        gates = 2 if net.gated else 1
        up_weight = _pad(up_weight.reshape(gates, net.ffn, -1), 1, ffn).reshape(gates * ffn, -1)
        up_bias = _pad(up_bias.reshape(gates, net.ffn), 1, ffn).reshape(-1)
        self._pack_arrays(f"{name}.qkv", split_heads(qkv_weight, 3), split_heads(qkv_bias, 3))
        self._pack_arrays(f"{name}.attention_output", split_heads(output_weight.T, 1).T, output_bias)
        self._pack_arrays(f"{name}.ffn_up", up_weight, up_bias)
        self._pack_linear(f"{name}.ffn_down", layer.ffn_down)
        if layer.attention_norm is not None:
            self._pack_norm(f"{name}.attention_norm", layer.attention_norm, width)
        self._pack_norm(f"{name}.ffn_norm", layer.ffn_norm, width)
        if layer.rope_theta is not None:
            self._pack_rope(layer.rope_theta, head_width // 2)

    def _pack_linear(self, name: str, dense: Dense, *, precision: Precision | None = None) -> None:
        self._pack_arrays(name, *_dense_arrays(dense), precision=precision)

    def _pack_arrays(self, name: str, weight: Array, bias: Array, *, precision: Precision | None = None) -> None:
        """Store one linear layer; `weight` is [outputs, inputs] in float32."""
        narrow = weight.shape[1] < MIN_INT8_INPUTS
        outputs, inputs = (round_up(size, PANEL) for size in weight.shape)
        weight = _pad(_pad(weight, 0, outputs), 1, inputs)
        self.inputs[name] = inputs
        self.arrays[f"{name}.bias"] = _pad(bias, 0, outputs)
        if (precision or self.precision) == "fp32" or narrow:
            packed = np.empty(inputs * outputs, np.float32)
            columns = np.ascontiguousarray(weight.T)
            self._pack_floats(columns.ctypes.data, inputs, outputs, packed.ctypes.data)
            self.arrays[f"{name}.packed"] = packed
            return
        # One scale per output, so that int8 weights are at most 127 and adjacent pairs sum to at most 128: AVX2
        # multiplies two levels of up to 255 at a time and adds the products in 16 bits.
        pairs = np.abs(weight.reshape(len(weight), -1, 2).sum(axis=2)).max(axis=1)
        scales = np.asarray(np.maximum(np.abs(weight).max(axis=1), pairs) / np.float32(127), np.float32)
        scales[~(scales > 0)] = 1.0
        levels = np.ascontiguousarray(np.rint(weight / scales[:, None]).T.astype(np.int8))
        packed_bytes = allocate_aligned(self._packed_size(inputs, outputs), "uint8")
        sums = np.empty(outputs, np.int32)
        self._pack(levels.ctypes.data, inputs, outputs, packed_bytes.ctypes.data, sums.ctypes.data)
        self.arrays |= {f"{name}.packed": packed_bytes, f"{name}.sums": sums, f"{name}.scales": scales}

    def _pack_norm(self, name: str, norm: Norm, width: int) -> None:
        weight = to_float32(norm.weight)
        bias = np.zeros_like(weight) if norm.bias is None else to_float32(norm.bias)
        self.arrays[f"{name}.weight"] = _pad(weight, 0, width)
        self.arrays[f"{name}.bias"] = _pad(bias, 0, width)

    def _pack_rope(self, theta: float, columns: int) -> None:
        name = f"rope.{theta!r}"
        if f"{name}.cosines" in self.arrays:
            return
        width, positions = self.network.head_width, self.network.positions
        # Angles are rounded to float32 as in transformers. Cosines are computed in double precision, so that they
        # round to the same float32 on every processor.
        exponents = np.arange(0, width, 2).astype(np.float32) / np.float32(width)
        frequencies = np.array([np.float32(1) / np.float32(theta ** float(e)) for e in exponents], np.float32)
        angles = np.arange(positions, dtype=np.float32)[:, None] * frequencies
        for part, function in (("cosines", np.cos), ("sines", np.sin)):
            self.arrays[f"{name}.{part}"] = _pad(function(angles.astype(np.float64)).astype(np.float32), 1, columns)


def build_struct(packed: PackedWeights) -> TransformerStruct:
    """Return the C structure that points to the packed arrays; the arrays must outlive it."""
    arrays, values = packed.arrays, packed.description

    def address(name: str) -> int | None:
        return int(arrays[name].ctypes.data) if name in arrays else None

    def linear(name: str) -> LinearStruct:
        if name not in values["inputs"]:
            return LinearStruct()
        parts = (address(f"{name}.{part}") for part in ("packed", "sums", "scales", "bias"))
        return LinearStruct(values["inputs"][name], arrays[f"{name}.bias"].size, *parts)

    def norm(name: str) -> NormStruct:
        return NormStruct(address(f"{name}.weight"), address(f"{name}.bias"))

    layers = (LayerStruct * values["layers"])()
    for i, layer in enumerate(layers):
        name, rope = f"layer.{i}", values["rope"][i]
        for part in ("qkv", "attention_output", "ffn_up", "ffn_down"):
            setattr(layer, part, linear(f"{name}.{part}"))
        layer.attention_norm, layer.ffn_norm = norm(f"{name}.attention_norm"), norm(f"{name}.ffn_norm")
        layer.window = values["windows"][i]
        if rope:
            layer.cosines, layer.sines = address(f"{rope}.cosines"), address(f"{rope}.sines")
    steps = (HeadStepStruct * len(values["head"]))(*(HeadStepStruct(**step) for step in values["head"]))
    for i, step in enumerate(steps):
        step.linear, step.norm = linear(f"head.{i}"), norm(f"head.{i}")
    names = [field[0] for field in TransformerStruct._fields_ if field[1] in (c_int32, c_float)]
    return TransformerStruct(
        **{name: values[name] for name in names},
        embedding_norm=norm("embedding_norm"),
        final_norm=norm("final_norm"),
        projection=linear("projection"),
        layer=layers,
        head=steps,
    )


def save_packed(packed: PackedWeights, file: BinaryIO) -> None:
    """Write packed weights: a header with offsets and the sha256 of the rest, then the arrays."""
    entries: dict[str, dict[str, object]] = {}
    offset = 0
    for name, array in packed.arrays.items():
        entries[name] = {"dtype": array.dtype.str, "shape": list(array.shape), "offset": offset}
        offset = round_up(offset + array.nbytes, ALIGNMENT)
    digest = hashlib.sha256()
    for chunk in _iterate_chunks(packed):
        digest.update(chunk)
    contents = {"description": packed.description, "arrays": entries, "size": offset, "sha256": digest.hexdigest()}
    header = json.dumps(contents).encode()
    header += b" " * (-(len(_MAGIC) + 8 + len(header)) % ALIGNMENT)
    file.write(_MAGIC + len(header).to_bytes(8, "little") + header)
    for chunk in _iterate_chunks(packed):
        file.write(chunk)


def load_packed(path: Path) -> PackedWeights:
    """Memory-map and verify packed weights; raise ModelFileError for a damaged file."""
    memory = np.memmap(path, dtype=np.uint8, mode="r")
    start = len(_MAGIC) + 8
    try:
        if bytes(memory[: len(_MAGIC)]) != _MAGIC:
            raise ValueError("not a file of packed weights")
        size = int.from_bytes(bytes(memory[len(_MAGIC) : start]), "little")
        header = json.loads(bytes(memory[start : start + size]))
        body = memory[start + size :]
        if body.size != header["size"] or hashlib.sha256(body.data).hexdigest() != header["sha256"]:
            raise ValueError("its contents do not match its checksum")
        arrays = {}
        for name, entry in header["arrays"].items():
            dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
            end = entry["offset"] + dtype.itemsize * math.prod(shape)
            arrays[name] = body[entry["offset"] : end].view(dtype).reshape(shape)
        return PackedWeights(header["description"], arrays)
    except (ValueError, KeyError, TypeError) as exc:
        raise ModelFileError(f"{path} is damaged: {exc}. Delete it; it will be created again.") from exc


def _iterate_chunks(packed: PackedWeights) -> Iterator[memoryview]:
    for array in packed.arrays.values():
        yield np.ascontiguousarray(array).view(np.uint8).reshape(-1).data
        yield memoryview(bytes(-array.nbytes % ALIGNMENT))


def round_up(size: int, multiple: int) -> int:
    """Return the smallest multiple that is not below `size`."""
    return -(-size // multiple) * multiple


def to_float32(array: Array) -> Array:
    """Return an array as float32; uint16 values are bfloat16 numbers, the upper halves of float32."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    # A safetensors header may have any length, so the tensors after it may begin at any byte.
    return np.require(array, np.float32, ["C", "ALIGNED"])


def allocate_aligned(size: int, dtype: str) -> Array:
    """Return an uninitialized array that starts on a cache line."""
    item = np.dtype(dtype).itemsize
    memory = np.empty(size * item + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size * item].view(dtype)


def _dense_arrays(dense: Dense) -> tuple[Array, Array]:
    weight = to_float32(dense.weight)
    bias = np.zeros(weight.shape[0], np.float32) if dense.bias is None else to_float32(dense.bias)
    return weight, bias


def _pad(array: Array, axis: int, size: int) -> Array:
    """Pad the array with zeros at the end of one axis."""
    missing = size - array.shape[axis]
    if not missing:
        return array
    return np.pad(array, [(0, missing if i == axis else 0) for i in range(array.ndim)])
