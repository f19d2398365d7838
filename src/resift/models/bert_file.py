"""What a model file says of its BERT: sizes, names of its parts, and where their weights are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from resift.models.onnx_wire import Graph

_MODULE = re.compile(r"/(.+)/(?:Gemm_)?MatMul_quant$")
_LAYER = re.compile(r"encoder/layer\.(\d+)/")

READING = (KeyError, IndexError, StopIteration, ValueError, AttributeError, TypeError)
"""What reading a graph of another architecture may raise."""


class UnknownArchitectureError(Exception):
    """The file is no BERT with dynamically quantised int8 weights as PyTorch exports it."""


@dataclass(frozen=True)
class BertFile:
    """The graph of a quantised BERT as PyTorch exports it, read by the names of its modules."""

    graph: Graph

    def weight(self, name: str) -> Any:
        """Return a weight of the encoder by its dotted name."""
        return self.graph.weights[self.prefix + name]

    def base(self, module: str) -> str:
        """Return what the names of a linear layer's weight, scale and zero point begin with."""
        return self._products[module if module == "classifier" else self.prefix + module]

    def quantised(self, base: str) -> tuple[Any, Any, Any]:
        """Return levels, scale and zero point of a quantised weight."""
        levels, scale, zero = (
            self.graph.weights[base + end] for end in ("_quantized", "_scale", "_zero_point")
        )
        return levels, scale, zero

    def dequantised(self, name: str) -> Any:
        """Return a weight of the encoder as numbers."""
        levels, scale, zero = self.quantised(self.prefix + name)
        return ((levels.astype("int32") - int(zero)).astype("float32") * scale).astype("float32")

    @cached_property
    def layers(self) -> int:
        """How many layers there are."""
        return 1 + max(int(found[1]) for node in self.graph.nodes if (found := _LAYER.search(node.name)))

    @cached_property
    def classifies(self) -> bool:
        """Whether a pooler and a classifier follow the encoder."""
        return any(node.name.startswith("/classifier/") for node in self.graph.nodes)

    @cached_property
    def prefix(self) -> str:
        """What the encoder's names begin with."""
        end = "embeddings.LayerNorm.weight"
        return next(name for name in self.graph.weights if name.endswith(end)).removesuffix(end)

    @cached_property
    def hidden(self) -> int:
        """The width of a token's state."""
        return int(self.weight("embeddings.LayerNorm.weight").shape[0])

    @cached_property
    def scales_both(self) -> bool:
        """Whether the file scales queries and keys by a root each, or their product afterwards."""
        end = "layer.0/attention/self/Mul"
        return any(node.op == "Mul" and node.name.endswith(end) for node in self.graph.nodes)

    @cached_property
    def head_width(self) -> int:
        """Read from the file's own reshapes: the first two constants in a row whose product is the width."""
        found = [
            int(number)
            for node in self.graph.nodes
            if node.op == "Constant" and "layer.0/attention/self/" in node.name
            for number in self.graph.weights[node.outputs[0]].reshape(-1)
        ]
        return next(after for one, after in pairwise(found) if one * after == self.hidden)

    @cached_property
    def _products(self) -> dict[str, str]:
        found = ((_MODULE.match(node.name), node) for node in self.graph.nodes if node.op == "MatMulInteger")
        return {
            module[1].replace("/", "."): str(node.inputs[1]).removesuffix("_quantized")
            for module, node in found
            if module
        }
