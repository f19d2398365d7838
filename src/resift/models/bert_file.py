"""The one architecture that the compiled code computes, and whether a file is of it.

A BERT encoder with dynamically quantised int8 weights as PyTorch exports it. Sizes, operations and every
tensor's shape and type are checked here before memory reaches C; what does not fit is left to ONNX Runtime.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from resift.models.onnx_graph import Graph

if TYPE_CHECKING:
    from resift.models.onnx_graph import Array

PANEL = 64
"""Widths are multiples of this (native/bert.h)."""

HEAD_WIDTH = 32
"""And the width of a head of this."""

EPSILON = 1e-12
"""Of every layer norm."""

LIMITS = {
    "hidden": 4096, "ffn": 16_384, "layers": 64, "words": 1 << 20, "token_types": 64, "positions": 8192,
    "classes": 4096,
}  # fmt: skip
"""Sizes beyond any BERT; products of them fit into 64 bits, and sums of int8 products into 32."""

LAYER_SHAPES = {
    "attention.self.query": ("hidden", "hidden"),
    "attention.self.key": ("hidden", "hidden"),
    "attention.self.value": ("hidden", "hidden"),
    "attention.output.dense": ("hidden", "hidden"),
    "intermediate.dense": ("hidden", "ffn"),
    "output.dense": ("ffn", "hidden"),
}
"""Inputs and outputs of each linear layer of a layer."""

HEAD_SHAPES = {"pooler.dense": ("hidden", "hidden"), "classifier": ("hidden", "classes")}
"""And of what follows the encoder in a classifier."""

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
    """The file is no BERT with dynamically quantised int8 weights as PyTorch exports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Every number of the architecture."""

    hidden: int
    head_width: int
    ffn: int
    layers: int
    words: int
    token_types: int
    positions: int
    classes: int


@dataclass(frozen=True)
class BertFile:
    """A graph that is read by the names of its modules; every method raises UnknownArchitectureError."""

    graph: Graph

    @cached_property
    def sizes(self) -> Sizes:
        """The architecture's sizes, from the tensors that name them; all others must agree."""
        sizes = Sizes(
            hidden=self._array("embeddings.LayerNorm.weight", "float32", ndim=1).shape[0],
            head_width=self._head_width,
            ffn=self._array(self.base("encoder.layer.0.intermediate.dense") + "_quantized", "int8").shape[1],
            layers=self._layers,
            words=self._rows("word_embeddings"),
            token_types=self._rows("token_type_embeddings"),
            positions=self._rows("position_embeddings"),
            classes=self._array(self.base("classifier") + "_quantized", "int8").shape[1]
            if self._classifies
            else 0,
        )
        for name, limit in LIMITS.items():
            value = getattr(sizes, name)
            if not (0 < value <= limit or (name == "classes" and not self._classifies)):
                raise UnknownArchitectureError(f"{name} is {value}, the limit is {limit}")
        if sizes.hidden % PANEL or sizes.ffn % PANEL or sizes.head_width % HEAD_WIDTH:
            raise UnknownArchitectureError(f"widths {sizes.hidden}, {sizes.ffn} and {sizes.head_width}")
        self._check_operations(sizes)
        return sizes

    def linear(self, module: str, shape: tuple[str, str]) -> tuple[Array, Array, Array]:
        """Return int8 levels, a scale per output and the bias of a linear layer of that shape."""
        inputs, outputs = (int(getattr(self.sizes, size)) for size in shape)
        base = self.base(module)
        levels = self._array(base + "_quantized", "int8", shape=(inputs, outputs))
        zero = self._array(base + "_zero_point", "int8")
        scale = self._array(base + "_scale", "float32")
        bias = self._array(f"{module}.bias", "float32", shape=(outputs,))
        if zero.any() or {zero.shape, scale.shape} > {(), (1,), (outputs,)}:
            raise UnknownArchitectureError(f"{module}: weights that are not symmetric")
        if scale.shape not in ((), (1,), (outputs,)):
            raise UnknownArchitectureError(f"{module}: {scale.shape} scales for {outputs} outputs")
        spread: Array = scale.reshape(-1).repeat(outputs // scale.size)
        return levels, spread, bias

    def norm(self, name: str) -> tuple[Array, Array]:
        """Return weight and bias of a layer norm."""
        shape = (self.sizes.hidden,)
        return self._array(f"{name}.weight", "float32", shape=shape), self._array(
            f"{name}.bias", "float32", shape=shape
        )

    def embedding(self, name: str, rows: int) -> tuple[Array, float, int]:
        """Return bytes, scale and zero point of a table of embeddings."""
        base = f"embeddings.{name}.weight"
        levels = self._array(base + "_quantized", "uint8", shape=(rows, self.sizes.hidden))
        scale, zero = self._array(base + "_scale", "float32"), self._array(base + "_zero_point", "uint8")
        if scale.size != 1 or zero.size != 1:
            raise UnknownArchitectureError(f"{name} has {scale.size} scales")
        return levels, float(scale.reshape(())), int(zero.reshape(()))

    @cached_property
    def scales_query_and_key(self) -> bool:
        """Whether the file scales queries and keys by a root each, or their product afterwards."""
        end = "layer.0/attention/self/Mul"
        return any(node.op == "Mul" and node.name.endswith(end) for node in self.graph.nodes)

    def base(self, module: str) -> str:
        """Return what the names of a linear layer's weight, scale and zero point begin with."""
        whole = module if module == "classifier" else self._prefix + module
        if whole not in self._products:
            raise UnknownArchitectureError(f"no quantised product {whole!r}")
        return self._products[whole]

    def _array(
        self, name: str, dtype: str, *, shape: tuple[int, ...] | None = None, ndim: int | None = None
    ) -> Array:
        """Return a weight by its name, with or without the encoder's prefix; refuse another shape or type."""
        array = self.graph.weights.get(name, self.graph.weights.get(self._prefix + name))
        if array is None:
            raise UnknownArchitectureError(f"no weight {name!r}")
        wanted = 2 if shape is None and name.endswith("_quantized") else ndim
        if array.dtype != dtype or (wanted is not None and array.ndim != wanted):
            raise UnknownArchitectureError(f"{name!r} is {array.dtype} of shape {array.shape}, not {dtype}")
        if shape is not None and array.shape != shape:
            raise UnknownArchitectureError(f"{name!r} has the shape {array.shape}, not {shape}")
        return array

    def _rows(self, table: str) -> int:
        return int(self._array(f"embeddings.{table}.weight_quantized", "uint8").shape[0])

    @cached_property
    def _prefix(self) -> str:
        end = "embeddings.LayerNorm.weight"
        found = [name.removesuffix(end) for name in self.graph.weights if name.endswith(end)]
        if len(found) != 1:
            raise UnknownArchitectureError(f"{len(found)} encoders")
        return found[0]

    @cached_property
    def _classifies(self) -> bool:
        return any(node.name.startswith("/classifier/") for node in self.graph.nodes)

    @cached_property
    def _layers(self) -> int:
        numbers = {int(found[1][:9]) for node in self.graph.nodes if (found := _LAYER.search(node.name))}
        if numbers != set(range(len(numbers))):
            raise UnknownArchitectureError("layers that are not numbered one after another")
        return len(numbers)

    @cached_property
    def _head_width(self) -> int:
        """Read from the file's own reshapes: the first two constants in a row whose product is the width."""
        hidden = self._array("embeddings.LayerNorm.weight", "float32", ndim=1).shape[0]
        found: list[int] = []
        for node in self.graph.nodes:
            if node.op == "Constant" and "layer.0/attention/self/" in node.name and node.outputs:
                constant: Any = self.graph.weights.get(node.outputs[0])
                if constant is not None and constant.dtype == "int64" and constant.size <= 8:
                    found += [int(number) for number in constant.reshape(-1)]
        for heads, width in pairwise(found):
            if heads > 0 and width > 0 and heads * width == hidden:
                return width
        raise UnknownArchitectureError("no reshape into heads")

    @cached_property
    def _products(self) -> dict[str, str]:
        found = ((_MODULE.match(node.name), node) for node in self.graph.nodes if node.op == "MatMulInteger")
        return {
            module[1].replace("/", "."): node.inputs[1].removesuffix("_quantized")
            for module, node in found
            if module and len(node.inputs) > 1
        }

    def _check_operations(self, sizes: Sizes) -> None:
        """Refuse a graph that computes anything else, whatever its names say."""
        counts = Counter(node.op for node in self.graph.nodes)
        other = sorted(counts.keys() - _OPERATIONS)
        if other:
            raise UnknownArchitectureError(f"operation {other[0]!r}")
        layers, poolers = sizes.layers, counts["Tanh"]
        norms = counts["Pow"] + counts["LayerNormalization"]
        expected = {
            "Softmax": layers,
            "Erf": layers,
            "MatMul": 2 * layers,
            "MatMulInteger": len(LAYER_SHAPES) * layers + poolers + self._classifies,
            "DequantizeLinear": 3,
        }
        wrong = [op for op, count in expected.items() if counts[op] != count]
        if wrong or poolers > 1 or poolers < self._classifies or norms != 2 * layers + 1:
            raise UnknownArchitectureError(f"an unusual number of {(wrong or ['norm'])[0]} operations")
        if len(self._products) != counts["MatMulInteger"]:
            raise UnknownArchitectureError("products that have the same name or none")
        self._check_epsilon()

    def _check_epsilon(self) -> None:
        for node in self.graph.nodes:
            constant = (
                self.graph.weights.get(node.outputs[0]) if node.op == "Constant" and node.outputs else None
            )
            if constant is None or "LayerNorm/" not in node.name or constant.dtype != "float32":
                continue
            if constant.size != 1 or float(constant.reshape(())) not in (
                2.0,
                float(constant.dtype.type(EPSILON)),
            ):
                raise UnknownArchitectureError("a layer norm with another epsilon")
