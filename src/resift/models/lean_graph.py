"""A leaner graph from the weights of a quantised BERT file: the same numbers with less work around them.

Exported graphs recompute shapes and masks in every layer. One row at a time needs neither, so this module
writes a new graph over the same weights, with the operations that ONNX Runtime itself would fuse to: its
scores are those of the file, bit for bit, and it loads faster. With exact=False it also replaces the slow
residual norm and computes only the first token in the last layer; scores then move by hundredths.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from resift.models.onnx_wire import Attribute, Graph, Node, is_outside, read_graph, write_model

_FUSED = "com.microsoft"
_EPSILON = 1e-12
_MODULE = re.compile(r"/(.+)/(?:Gemm_)?MatMul_quant$")
_LAYER = re.compile(r"encoder/layer\.(\d+)/")


class UnknownArchitectureError(Exception):
    """The file is no BERT with dynamically quantised int8 weights as PyTorch exports it."""


@dataclass(frozen=True, slots=True)
class LeanGraph:
    """A written graph and the large weights it names."""

    model: bytes
    outside: dict[str, Any]


def lean_graph(model: bytes, np: Any, *, exact: bool = True) -> LeanGraph:
    """Return the lean graph of a model file, or raise UnknownArchitectureError."""
    try:
        return _Writer(read_graph(model, np), np, exact=exact).write()
    except (KeyError, IndexError, StopIteration, ValueError, AttributeError, TypeError) as exc:
        raise UnknownArchitectureError(f"{type(exc).__name__}: {exc}") from exc


@dataclass
class _Writer:
    """Writes nodes while it walks the layers; every method returns the name of its result."""

    graph: Graph
    np: Any
    exact: bool
    nodes: list[Node] = field(default_factory=list)
    weights: dict[str, Any] = field(default_factory=dict)

    def write(self) -> LeanGraph:
        layers = 1 + max(int(found[1]) for node in self.graph.nodes if (found := _LAYER.search(node.name)))
        classifies = any(node.name.startswith("/classifier/") for node in self.graph.nodes)
        self._constants()
        states = self._embeddings()
        for number in range(layers):
            only_first = classifies and not self.exact and number == layers - 1
            states = self._layer(f"encoder.layer.{number}.", states, only_first=only_first)
        shape: list[int | str] = ["batch", "tokens", self._hidden]
        if classifies:
            states, shape = self._classifier(states), ["batch", self._width("classifier")]
        both: list[int | str] = ["batch", "tokens"]
        inputs = {"input_ids": both, "token_type_ids": both}
        written = write_model(self.nodes, self.weights, inputs=inputs, outputs={states: shape})
        return LeanGraph(written, {name: array for name, array in self.weights.items() if is_outside(array)})

    def _embeddings(self) -> str:
        words = self._looked_up("word_embeddings", "input_ids")
        kinds = self._looked_up("token_type_embeddings", "token_type_ids")
        summed = self._add("Add", [words, kinds])
        size = self._add("Slice", [self._add("Shape", ["input_ids"]), "one", "two"])
        places = self._dequantised("embeddings.position_embeddings.weight")
        placed = self._add("Add", [summed, self._add("Slice", [places, "zero", size, "zero"])])
        return self._norm("embeddings.LayerNorm", placed)

    def _looked_up(self, table: str, ids: str) -> str:
        base = f"embeddings.{table}.weight"
        parts = [self._kept(base + end) for end in ("_quantized", "_scale", "_zero_point")]
        return self._add("DequantizeLinear", [self._add("Gather", [parts[0], ids]), *parts[1:]])

    def _layer(self, layer: str, states: str, *, only_first: bool) -> str:
        mixed, states = self._attention(layer + "attention.self.", states, only_first=only_first)
        attended = self._dense(layer + "attention.output.dense", mixed)
        attended = self._norm(layer + "attention.output.LayerNorm", self._add("Add", [attended, states]))
        wide = self._add("Gelu", [self._dense(layer + "intermediate.dense", attended)], domain=_FUSED)
        narrow = self._dense(layer + "output.dense", wide)
        return self._residual_norm(layer + "output.LayerNorm", narrow, attended)

    def _attention(self, name: str, states: str, *, only_first: bool) -> tuple[str, str]:
        quantised = self._add("DynamicQuantizeLinear", [states], outputs=3)
        asking = quantised
        if only_first:
            asking = self._add("Slice", [quantised, "zero", "one", "one"])
            states = self._add("Slice", [states, "zero", "one", "one"])
        query = self._heads(self._dense(name + "query", asking, shared=quantised), (0, 2, 1, 3))
        key = self._heads(self._dense(name + "key", quantised, shared=quantised), (0, 2, 3, 1))
        value = self._heads(self._dense(name + "value", quantised, shared=quantised), (0, 2, 1, 3))
        weights = self._add("Softmax", [self._similarity(query, key)], axis=-1)
        mixed = self._add("Transpose", [self._add("MatMul", [weights, value])], perm=(0, 2, 1, 3))
        return self._add("Reshape", [mixed, "flat"]), states

    def _similarity(self, query: str, key: str) -> str:
        if not self._scales_both:
            # Runtime attribute of a fused product; the exported graph divides afterwards.
            alpha = float(self.np.float32(1) / self.np.sqrt(self.np.float32(self._head_width)))
            return self._add("FusedMatMul", [query, key], domain=_FUSED, alpha=alpha)
        return self._add("MatMul", [self._add("Mul", [side, "root"]) for side in (query, key)])

    def _heads(self, states: str, order: tuple[int, ...]) -> str:
        return self._add("Transpose", [self._add("Reshape", [states, "heads"])], perm=order)

    def _classifier(self, states: str) -> str:
        first = self._add("Gather", [states, "first"], axis=1)
        pooled = self._add("Tanh", [self._dense("pooler.dense", first)])
        return self._dense("classifier", pooled)

    def _dense(self, name: str, states: str, *, shared: str | None = None) -> str:
        base = self._weight_of(name)
        weight, scale, zero = (
            self._kept(base + end, whole=True) for end in ("_quantized", "_scale", "_zero_point")
        )
        bias = self._kept(name + ".bias", whole=name == "classifier")
        if shared is None:
            return self._add("DynamicQuantizeMatMul", [states, weight, scale, zero, bias], domain=_FUSED)
        inputs = [states, weight, f"{shared}:1", scale, f"{shared}:2", zero, bias]
        return self._add("MatMulIntegerToFloat", inputs, domain=_FUSED)

    def _residual_norm(self, name: str, states: str, residual: str) -> str:
        if not (self.exact and self._scales_both):
            return self._norm(name, self._add("Add", [states, residual]))
        # Slow, but what the runtime makes of such files; another order of additions gives other bits.
        gamma, beta = self._kept(name + ".weight"), self._kept(name + ".bias")
        inputs = [states, residual, gamma, beta]
        return self._add("SkipLayerNormalization", inputs, domain=_FUSED, epsilon=_EPSILON)

    def _norm(self, name: str, states: str) -> str:
        inputs = [states, self._kept(name + ".weight"), self._kept(name + ".bias")]
        return self._add("LayerNormalization", inputs, axis=-1, epsilon=_EPSILON)

    def _add(
        self, op: str, inputs: Sequence[str], *, outputs: int = 1, domain: str = "", **at: Attribute
    ) -> str:
        name = f"{op}_{len(self.nodes)}"
        names = [name, *(f"{name}:{number}" for number in range(1, outputs))]
        self.nodes.append(Node(op, inputs, names, name=name, domain=domain, attributes=at))
        return name

    def _kept(self, name: str, *, whole: bool = False) -> str:
        full = name if whole else self._prefix + name
        self.weights[full] = self.graph.weights[full]
        return full

    def _dequantised(self, base: str) -> str:
        base = self._prefix + base
        parts = ("_quantized", "_scale", "_zero_point")
        values, scale, zero = (self.graph.weights[base + part] for part in parts)
        table = (values.astype("int32") - int(zero)).astype("float32") * scale
        self.weights[base] = table.astype("float32")
        return base

    def _weight_of(self, name: str) -> str:
        full = name if name == "classifier" else self._prefix + name
        return self._products[full]

    def _width(self, name: str) -> int:
        return int(self.graph.weights[self._weight_of(name) + "_quantized"].shape[1])

    def _constants(self) -> None:
        np = self.np
        numbers = {"zero": [0], "one": [1], "two": [2], "first": 0, "flat": [0, -1, self._hidden]}
        numbers["heads"] = [0, -1, self._hidden // self._head_width, self._head_width]
        self.weights |= {name: np.array(value, dtype="int64") for name, value in numbers.items()}
        if self._scales_both:
            root = np.sqrt(np.float32(1) / np.sqrt(np.float32(self._head_width)))
            self.weights["root"] = np.array(root, dtype="float32")

    @cached_property
    def _products(self) -> dict[str, str]:
        """The weight's base name of each integer product, by the dotted name of its module."""
        found = ((_MODULE.match(node.name), node) for node in self.graph.nodes if node.op == "MatMulInteger")
        return {
            module[1].replace("/", "."): str(node.inputs[1]).removesuffix("_quantized")
            for module, node in found
            if module
        }

    @cached_property
    def _prefix(self) -> str:
        end = "embeddings.LayerNorm.weight"
        return next(name for name in self.graph.weights if name.endswith(end)).removesuffix(end)

    @cached_property
    def _hidden(self) -> int:
        return int(self.graph.weights[self._prefix + "embeddings.LayerNorm.weight"].shape[0])

    @cached_property
    def _scales_both(self) -> bool:
        """Whether the file scales queries and keys by a root each, or their product afterwards."""
        end = "layer.0/attention/self/Mul"
        return any(node.op == "Mul" and node.name.endswith(end) for node in self.graph.nodes)

    @cached_property
    def _head_width(self) -> int:
        """Read from the file's own reshapes: the first two constants in a row whose product is the width."""
        found = [
            int(number)
            for node in self.graph.nodes
            if node.op == "Constant" and "layer.0/attention/self/" in node.name
            for number in self.graph.weights[node.outputs[0]].reshape(-1)
        ]
        return next(after for one, after in pairwise(found) if one * after == self._hidden)
