"""Recognize a BERT with dynamically quantized int8 weights in an ONNX graph exported by PyTorch.

All operations, shapes and types are checked here, before the native engine reads any of the memory.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from resift._internal.arrays import Array
from resift.models.onnx_reader import OnnxGraph

PANEL = 64  # layer widths are multiples of this (native/bert.h)
HEAD_WIDTH = 32  # the width of an attention head is a multiple of this
EPSILON = 1e-12  # epsilon of every layer norm

LIMITS = {
    "hidden": 4096, "ffn": 16_384, "layers": 64, "words": 1 << 20, "token_types": 64, "positions": 8192,
    "classes": 4096,
}  # fmt: skip
"""Upper limits; no BERT is larger. Products of these sizes fit in 64 bits, and sums of int8 products in 32."""

LAYER_SHAPES = {
    "attention.self.query": ("hidden", "hidden"),
    "attention.self.key": ("hidden", "hidden"),
    "attention.self.value": ("hidden", "hidden"),
    "attention.output.dense": ("hidden", "hidden"),
    "intermediate.dense": ("hidden", "ffn"),
    "output.dense": ("ffn", "hidden"),
}
"""Inputs and outputs of the linear modules in one encoder layer."""

HEAD_SHAPES = {"pooler.dense": ("hidden", "hidden"), "classifier": ("hidden", "classes")}
"""Inputs and outputs of the linear modules in a classification head."""

_OPERATIONS = frozenset(
    {
        "Add", "Cast", "Concat", "Constant", "ConstantOfShape", "DequantizeLinear", "Div",
        "DynamicQuantizeLinear", "Equal", "Erf", "Expand", "Gather", "LayerNormalization", "MatMul",
        "MatMulInteger", "Mul", "Pow", "ReduceMean", "Reshape", "Shape", "Slice", "Softmax", "Sqrt",
        "Sub", "Tanh", "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip
_MODULE = re.compile(r"\A/(.{1,500})/(?:Gemm_)?MatMul_quant$")
_LAYER = re.compile(r"encoder/layer\.(\d+)/")


class UnknownArchitectureError(Exception):
    """The native engine does not support the model in this file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BertSizes:
    """All sizes of a BERT. `classes` is 0 for an encoder without a classification head."""

    hidden: int
    head_width: int
    ffn: int
    layers: int
    words: int
    token_types: int
    positions: int
    classes: int


@dataclass(frozen=True)
class OnnxBert:
    """Reads a graph by module name. Every method may raise UnknownArchitectureError."""

    graph: OnnxGraph

    @cached_property
    def sizes(self) -> BertSizes:
        """The sizes, each read from one tensor; all other tensors must match."""
        classes = 0
        if self._has_classifier:
            classes = self._array(self._weight_name("classifier") + "_quantized", "int8").shape[1]
        up = self._weight_name("encoder.layer.0.intermediate.dense")
        sizes = BertSizes(
            hidden=self._array("embeddings.LayerNorm.weight", "float32", ndim=1).shape[0],
            head_width=self._head_width,
            ffn=self._array(up + "_quantized", "int8").shape[1],
            layers=self._layers,
            words=self._count_rows("word_embeddings"),
            token_types=self._count_rows("token_type_embeddings"),
            positions=self._count_rows("position_embeddings"),
            classes=classes,
        )
        for name, limit in LIMITS.items():
            value = getattr(sizes, name)
            if not (0 < value <= limit or (name == "classes" and not self._has_classifier)):
                raise UnknownArchitectureError(f"{name} is {value}, the limit is {limit}")
        if sizes.hidden % PANEL or sizes.ffn % PANEL or sizes.head_width % HEAD_WIDTH:
            raise UnknownArchitectureError(f"widths {sizes.hidden}, {sizes.ffn} and {sizes.head_width}")
        self._check_operations(sizes)
        return sizes

    def linear(self, module: str, shape: tuple[str, str]) -> tuple[Array, Array, Array]:
        """Return the int8 weights, one scale per output, and the bias of a linear module with this shape."""
        inputs, outputs = (int(getattr(self.sizes, size)) for size in shape)
        name = self._weight_name(module)
        weights = self._array(name + "_quantized", "int8", shape=(inputs, outputs))
        zero = self._array(name + "_zero_point", "int8")
        scale = self._array(name + "_scale", "float32")
        bias = self._array(f"{module}.bias", "float32", shape=(outputs,))
        if zero.any() or {zero.shape, scale.shape} > {(), (1,), (outputs,)}:
            raise UnknownArchitectureError(f"{module}: weights that are not symmetric")
        if scale.shape not in ((), (1,), (outputs,)):
            raise UnknownArchitectureError(f"{module}: {scale.shape} scales for {outputs} outputs")
        scales: Array = scale.reshape(-1).repeat(outputs // scale.size)
        return weights, scales, bias

    def norm(self, name: str) -> tuple[Array, Array]:
        """Return the weight and bias of a layer norm."""
        shape = (self.sizes.hidden,)
        weight = self._array(f"{name}.weight", "float32", shape=shape)
        return weight, self._array(f"{name}.bias", "float32", shape=shape)

    def embedding(self, name: str, rows: int) -> tuple[Array, float, int]:
        """Return the uint8 values, scale and zero point of an embedding table."""
        base = f"embeddings.{name}.weight"
        values = self._array(base + "_quantized", "uint8", shape=(rows, self.sizes.hidden))
        scale, zero = self._array(base + "_scale", "float32"), self._array(base + "_zero_point", "uint8")
        if scale.size != 1 or zero.size != 1:
            raise UnknownArchitectureError(f"{name} has {scale.size} scales")
        return values, float(scale.reshape(())), int(zero.reshape(()))

    @cached_property
    def scales_query_and_key(self) -> bool:
        """Whether the graph scales query and key by a square root each, instead of scaling their product."""
        return any(node.op == "Mul" and node.name.endswith("layer.0/attention/self/Mul") for node in self.graph.nodes)

    def _weight_name(self, module: str) -> str:
        """Return the common prefix of the names of a linear module's weight, scale and zero point."""
        full_name = module if module == "classifier" else self._prefix + module
        if full_name not in self._products:
            raise UnknownArchitectureError(f"no quantized product {full_name!r}")
        return self._products[full_name]

    def _array(self, name: str, dtype: str, *, shape: tuple[int, ...] | None = None, ndim: int | None = None) -> Array:
        """Return a weight by name, with or without the encoder's prefix; reject any other shape or type."""
        array = self.graph.weights.get(name, self.graph.weights.get(self._prefix + name))
        if array is None:
            raise UnknownArchitectureError(f"no weight {name!r}")
        if shape is None and name.endswith("_quantized"):
            ndim = 2
        if array.dtype != dtype or (ndim is not None and array.ndim != ndim):
            raise UnknownArchitectureError(f"{name!r} is {array.dtype} of shape {array.shape}, not {dtype}")
        if shape is not None and array.shape != shape:
            raise UnknownArchitectureError(f"{name!r} has the shape {array.shape}, not {shape}")
        return array

    def _count_rows(self, table: str) -> int:
        return int(self._array(f"embeddings.{table}.weight_quantized", "uint8").shape[0])

    @cached_property
    def _prefix(self) -> str:
        suffix = "embeddings.LayerNorm.weight"
        prefixes = [name.removesuffix(suffix) for name in self.graph.weights if name.endswith(suffix)]
        if len(prefixes) != 1:
            raise UnknownArchitectureError(f"{len(prefixes)} encoders")
        return prefixes[0]

    @cached_property
    def _has_classifier(self) -> bool:
        return any(node.name.startswith("/classifier/") for node in self.graph.nodes)

    @cached_property
    def _layers(self) -> int:
        numbers = {int(match[1][:9]) for node in self.graph.nodes if (match := _LAYER.search(node.name))}
        if numbers != set(range(len(numbers))):
            raise UnknownArchitectureError("layers that are not numbered consecutively")
        return len(numbers)

    @cached_property
    def _head_width(self) -> int:
        """Width of an attention head, from the first adjacent pair of reshape constants whose product is `hidden`."""
        hidden = self._array("embeddings.LayerNorm.weight", "float32", ndim=1).shape[0]
        constants: list[int] = []
        for node in self.graph.nodes:
            if node.op == "Constant" and "layer.0/attention/self/" in node.name and node.outputs:
                constant = self.graph.weights.get(node.outputs[0])
                if constant is not None and constant.dtype == "int64" and constant.size <= 8:
                    constants += [int(number) for number in constant.reshape(-1)]
        for heads, width in pairwise(constants):
            if heads > 0 and width > 0 and heads * width == hidden:
                return width
        raise UnknownArchitectureError("no reshape into heads")

    @cached_property
    def _products(self) -> dict[str, str]:
        """Weight name of each quantized product, by module name."""
        products: dict[str, str] = {}
        for node in self.graph.nodes:
            module = _MODULE.match(node.name) if node.op == "MatMulInteger" else None
            if module and len(node.inputs) > 1:
                products[module[1].replace("/", ".")] = node.inputs[1].removesuffix("_quantized")
        return products

    def _check_operations(self, sizes: BertSizes) -> None:
        """Reject a graph that computes anything other than a BERT, whatever its module names are."""
        counts = Counter(node.op for node in self.graph.nodes)
        unknown = sorted(counts.keys() - _OPERATIONS)
        if unknown:
            raise UnknownArchitectureError(f"operation {unknown[0]!r}")
        layers, poolers = sizes.layers, counts["Tanh"]
        norms = counts["Pow"] + counts["LayerNormalization"]
        expected = {
            "Softmax": layers,
            "Erf": layers,
            "MatMul": 2 * layers,
            "MatMulInteger": len(LAYER_SHAPES) * layers + poolers + self._has_classifier,
            "DequantizeLinear": 3,
        }
        wrong = [op for op, count in expected.items() if counts[op] != count]
        if wrong or poolers > 1 or poolers < self._has_classifier or norms != 2 * layers + 1:
            raise UnknownArchitectureError(f"an unusual number of {(wrong or ['norm'])[0]} operations")
        if len(self._products) != counts["MatMulInteger"]:
            raise UnknownArchitectureError("products with missing or duplicate names")
        for node in self.graph.nodes:
            if node.op != "Constant" or not node.outputs or "LayerNorm/" not in node.name:
                continue
            constant = self.graph.weights.get(node.outputs[0])
            if constant is None or constant.dtype != "float32":
                continue
            # Layer norms have two float constants: the exponent 2 and epsilon.
            allowed = (2.0, float(constant.dtype.type(EPSILON)))
            if constant.size != 1 or float(constant.reshape(())) not in allowed:
                raise UnknownArchitectureError("a layer norm with another epsilon")
