"""A small quantised BERT with random weights, named as PyTorch's exporter names it, and ways to alter it.

The graph has the operations and names that `resift.models.onnx_bert` reads, not the wires between them: only
the compiled code runs it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from resift.models.onnx_bert import LAYER_SHAPES
from tests.models.onnx_writer import Node, write_model

HIDDEN, HEADS, FFN, WORDS, POSITIONS, TYPES, CLASSES = 64, 2, 128, 40, 24, 2, 3


@dataclass
class SmallBert:
    """Weights and operations before they are serialised; tests change them."""

    layers: int = 2
    classes: int = CLASSES
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(7)
        for name, rows in (("word", WORDS), ("token_type", TYPES), ("position", POSITIONS)):
            self._table(f"bert.embeddings.{name}_embeddings.weight", rows)
            self._node("DequantizeLinear", f"/bert/embeddings/{name}_embeddings/Gather_output_0_DequantizeLinear")
        self._norm("bert.embeddings.LayerNorm")
        for number in range(self.layers):
            self._layer(f"bert.encoder.layer.{number}.")
        self._linear("bert.pooler.dense", HIDDEN, HIDDEN)
        self._node("Tanh", "/bert/pooler/activation/Tanh")
        self._linear("classifier", HIDDEN, self.classes)

    def write(self) -> bytes:
        """Return the file's bytes."""
        both: list[int | str] = ["batch", "tokens"]
        inputs = {"input_ids": both, "attention_mask": both, "token_type_ids": both}
        return write_model(self.nodes, self.weights, inputs=inputs, outputs={"logits": ["batch", self.classes]})

    def _layer(self, prefix: str) -> None:
        sizes = {"hidden": HIDDEN, "ffn": FFN}
        for module, (inputs, outputs) in LAYER_SHAPES.items():
            self._linear(prefix + module, sizes[inputs], sizes[outputs])
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            self._norm(prefix + norm)
        where = "/" + prefix.replace(".layer.", "/layer#").replace(".", "/").replace("#", ".")
        shape = np.array([HEADS, HIDDEN // HEADS], dtype="int64")
        self._constant(f"{where}attention/self/Constant", shape)
        for op, name, count in (("MatMul", "attention/self/MatMul", 2), ("Softmax", "attention/self/Softmax", 1)):
            for number in range(count):
                self._node(op, f"{where}{name}{f'_{number}' if number else ''}")
        self._node("Erf", f"{where}intermediate/intermediate_act_fn/Erf")

    def _linear(self, module: str, inputs: int, outputs: int) -> None:
        base = f"onnx::MatMul_{len(self.weights)}"
        self.weights[base + "_quantized"] = self._random.integers(-127, 128, (inputs, outputs)).astype("int8")
        self.weights[base + "_scale"] = np.array(0.002, dtype="float32")
        self.weights[base + "_zero_point"] = np.array(0, dtype="int8")
        self.weights[f"{module}.bias"] = self._random.normal(0, 0.1, outputs).astype("float32")
        path = module.replace(".layer.", "/layer#").replace(".", "/").replace("#", ".")
        node = Node("MatMulInteger", ["levels", base + "_quantized"], [path], name=f"/{path}/MatMul_quant")
        self.nodes.append(node)

    def _norm(self, name: str) -> None:
        self.weights[f"{name}.weight"] = self._random.normal(1, 0.1, HIDDEN).astype("float32")
        self.weights[f"{name}.bias"] = self._random.normal(0, 0.1, HIDDEN).astype("float32")
        path = name.replace(".layer.", "/layer#").replace(".", "/").replace("#", ".")
        self._node("Pow", f"/{path}/Pow")
        self._constant(f"/{path}/Constant_1", np.array(1e-12, dtype="float32"))

    def _table(self, base: str, rows: int) -> None:
        self.weights[base + "_quantized"] = self._random.integers(0, 256, (rows, HIDDEN)).astype("uint8")
        self.weights[base + "_scale"] = np.array(0.01, dtype="float32")
        self.weights[base + "_zero_point"] = np.array(120, dtype="uint8")

    def _constant(self, name: str, value: np.ndarray) -> None:
        self.nodes.append(Node("Constant", [], [f"{name}_output_0"], name=name, attributes={"value": value}))

    def _node(self, op: str, name: str) -> None:
        self.nodes.append(Node(op, ["x"], [name], name=name))


Alteration = Callable[[SmallBert, random.Random], None]


def _reshape(bert: SmallBert, rng: random.Random) -> None:
    """Give one tensor another shape."""
    name = rng.choice(list(bert.weights))
    old = bert.weights[name]
    shape = [rng.choice([0, 1, size // 2, size - 1, size + 1, size * 2, 64, 65, 3072]) for size in old.shape or (1,)]
    if rng.random() < 0.2:
        shape.append(rng.choice([0, 1, 2]))
    bert.weights[name] = np.resize(old, [max(0, size) for size in shape]).astype(old.dtype)


def _retype(bert: SmallBert, rng: random.Random) -> None:
    """Give one tensor another type."""
    name = rng.choice(list(bert.weights))
    with np.errstate(all="ignore"):
        bert.weights[name] = bert.weights[name].astype(rng.choice(["float32", "int8", "uint8", "int64", "int32"]))


def _drop(bert: SmallBert, rng: random.Random) -> None:
    """Leave one tensor out."""
    del bert.weights[rng.choice(list(bert.weights))]


def _swap(bert: SmallBert, rng: random.Random) -> None:
    """Exchange two tensors."""
    one, two = rng.sample(list(bert.weights), 2)
    bert.weights[one], bert.weights[two] = bert.weights[two], bert.weights[one]


def _extreme(bert: SmallBert, rng: random.Random) -> None:
    """Fill one tensor with the largest values of its type."""
    name = rng.choice(list(bert.weights))
    array = bert.weights[name]
    limits = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)
    bert.weights[name] = np.full_like(array, rng.choice([limits.max, limits.min]))


def _drop_node(bert: SmallBert, rng: random.Random) -> None:
    """Leave one operation out, or say it twice."""
    at = rng.randrange(len(bert.nodes))
    bert.nodes[at : at + 1] = [bert.nodes[at]] * rng.choice([0, 2])


def _rename_node(bert: SmallBert, rng: random.Random) -> None:
    """Give an operation the name or the kind of another."""
    one, two = rng.sample(bert.nodes, 2)
    if rng.random() < 0.5:
        one.name = two.name
    else:
        one.op = two.op


def _heads(bert: SmallBert, rng: random.Random) -> None:
    """Let the constants of a reshape say something else."""
    constants = [node for node in bert.nodes if node.op == "Constant"]
    numbers = [rng.choice([0, -1, 1, 2, 3, 32, 64, 2**31, 2**62, -(2**63)]) for _ in range(rng.randrange(5))]
    rng.choice(constants).attributes = {"value": np.array(numbers, dtype="int64")}


ALTERATIONS: list[Alteration] = [_reshape, _reshape, _retype, _drop, _swap, _extreme, _drop_node, _rename_node, _heads]


def altered(seed: int, *, classes: int = CLASSES) -> bytes:
    """Return a file with one to three alterations, and now and then with bytes of it changed."""
    rng = random.Random(seed)
    bert = SmallBert(layers=rng.choice([1, 2, 3]), classes=classes)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        rng.choice(ALTERATIONS)(bert, rng)
    data = bytearray(bert.write())
    if rng.random() < 0.3:
        for _ in range(rng.choice([1, 1, 2, 8])):
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)
