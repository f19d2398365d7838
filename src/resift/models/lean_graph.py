"""A leaner graph from the weights of a quantised BERT file: the same numbers with less work around them.

Exported graphs recompute shapes and masks in every layer. One row at a time needs neither, so this module
writes a new graph over the same weights, with the operations that ONNX Runtime itself would fuse to: its
scores are those of the file, bit for bit, and it loads faster. It runs where the compiled code cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from resift.models.bert_file import READING, BertFile, UnknownArchitectureError
from resift.models.onnx_wire import Attribute, Node, is_outside, read_graph, write_model

_FUSED = "com.microsoft"
_EPSILON = 1e-12


@dataclass(frozen=True, slots=True)
class LeanGraph:
    """A written graph and the large weights it names."""

    model: bytes
    outside: dict[str, Any]


def lean_graph(model: bytes, np: Any) -> LeanGraph:
    """Return the lean graph of a model file, or raise UnknownArchitectureError."""
    try:
        return _Writer(BertFile(read_graph(model, np)), np).write()
    except READING as exc:
        raise UnknownArchitectureError(f"{type(exc).__name__}: {exc}") from exc


@dataclass
class _Writer:
    """Writes nodes while it walks the layers; every method returns the name of its result."""

    file: BertFile
    np: Any
    nodes: list[Node] = field(default_factory=list)
    weights: dict[str, Any] = field(default_factory=dict)

    def write(self) -> LeanGraph:
        self._constants()
        states = self._embeddings()
        for number in range(self.file.layers):
            states = self._layer(f"encoder.layer.{number}.", states)
        shape: list[int | str] = ["batch", "tokens", self.file.hidden]
        if self.file.classifies:
            states, shape = self._classifier(states), ["batch", self._classes()]
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

    def _layer(self, layer: str, states: str) -> str:
        mixed = self._attention(layer + "attention.self.", states)
        attended = self._dense(layer + "attention.output.dense", mixed)
        attended = self._norm(layer + "attention.output.LayerNorm", self._add("Add", [attended, states]))
        wide = self._add("Gelu", [self._dense(layer + "intermediate.dense", attended)], domain=_FUSED)
        narrow = self._dense(layer + "output.dense", wide)
        return self._residual_norm(layer + "output.LayerNorm", narrow, attended)

    def _attention(self, name: str, states: str) -> str:
        quantised = self._add("DynamicQuantizeLinear", [states], outputs=3)
        query = self._heads(self._dense(name + "query", quantised, shared=quantised), (0, 2, 1, 3))
        key = self._heads(self._dense(name + "key", quantised, shared=quantised), (0, 2, 3, 1))
        value = self._heads(self._dense(name + "value", quantised, shared=quantised), (0, 2, 1, 3))
        weights = self._add("Softmax", [self._similarity(query, key)], axis=-1)
        mixed = self._add("Transpose", [self._add("MatMul", [weights, value])], perm=(0, 2, 1, 3))
        return self._add("Reshape", [mixed, "flat"])

    def _similarity(self, query: str, key: str) -> str:
        if not self.file.scales_both:
            # Runtime attribute of a fused product; the exported graph divides afterwards.
            alpha = float(self.np.float32(1) / self.np.sqrt(self.np.float32(self.file.head_width)))
            return self._add("FusedMatMul", [query, key], domain=_FUSED, alpha=alpha)
        return self._add("MatMul", [self._add("Mul", [side, "root"]) for side in (query, key)])

    def _heads(self, states: str, order: tuple[int, ...]) -> str:
        return self._add("Transpose", [self._add("Reshape", [states, "heads"])], perm=order)

    def _classifier(self, states: str) -> str:
        first = self._add("Gather", [states, "first"], axis=1)
        pooled = self._add("Tanh", [self._dense("pooler.dense", first)])
        return self._dense("classifier", pooled)

    def _dense(self, name: str, states: str, *, shared: str | None = None) -> str:
        base = self.file.base(name)
        weight, scale, zero = (
            self._kept(base + end, whole=True) for end in ("_quantized", "_scale", "_zero_point")
        )
        bias = self._kept(name + ".bias", whole=name == "classifier")
        if shared is None:
            return self._add("DynamicQuantizeMatMul", [states, weight, scale, zero, bias], domain=_FUSED)
        inputs = [states, weight, f"{shared}:1", scale, f"{shared}:2", zero, bias]
        return self._add("MatMulIntegerToFloat", inputs, domain=_FUSED)

    def _residual_norm(self, name: str, states: str, residual: str) -> str:
        if not self.file.scales_both:
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
        full = name if whole else self.file.prefix + name
        self.weights[full] = self.file.graph.weights[full]
        return full

    def _dequantised(self, name: str) -> str:
        self.weights[name] = self.file.dequantised(name)
        return name

    def _classes(self) -> int:
        return int(self.file.quantised(self.file.base("classifier"))[0].shape[1])

    def _constants(self) -> None:
        np = self.np
        numbers = {"zero": [0], "one": [1], "two": [2], "first": 0, "flat": [0, -1, self.file.hidden]}
        numbers["heads"] = [0, -1, self.file.hidden // self.file.head_width, self.file.head_width]
        self.weights |= {name: np.array(value, dtype="int64") for name, value in numbers.items()}
        if self.file.scales_both:
            root = np.sqrt(np.float32(1) / np.sqrt(np.float32(self.file.head_width)))
            self.weights["root"] = np.array(root, dtype="float32")
