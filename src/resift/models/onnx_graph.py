"""Weights and operations of an ONNX graph, by the same bounded reader that inspects files. No onnx package.

Field numbers are those of onnx.proto3. Arrays share the file's memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from resift._internal.arrays import np
from resift.models.protobuf import BYTES, VARINT, Field, Reader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

_FLOAT, _INT32, _INT64 = 1, 6, 7
_DTYPES = {_FLOAT: "<f4", 2: "u1", 3: "i1", _INT32: "<i4", _INT64: "<i8"}
_INTEGERS = {2: 5, 3: 5, _INT32: 5, _INT64: 7}
"""The field of a tensor that holds its values where they are not raw bytes, by data type."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of a graph."""

    op: str
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph's weights and constants by name, its operations in order, and the names of its outputs."""

    weights: dict[str, Array]
    nodes: list[Node]
    outputs: list[str]


@dataclass(slots=True)
class _Message:
    """The fields of one message, read once: numbers, and spans of the file."""

    reader: Reader
    start: int
    end: int
    fields: list[Field] = field(init=False)

    def __post_init__(self) -> None:
        self.fields = list(self.reader.fields(self.start, self.end))

    def spans(self, wanted: int) -> list[tuple[int, int]]:
        return [(at, stop) for number, wire, at, stop in self.fields if number == wanted and wire == BYTES]

    def messages(self, wanted: int) -> list[_Message]:
        return [_Message(self.reader, at, stop) for at, stop in self.spans(wanted)]

    def texts(self, wanted: int) -> list[str]:
        return [self.reader.text(at, stop) for at, stop in self.spans(wanted)]

    def text(self, wanted: int) -> str:
        return "".join(self.texts(wanted)[-1:])

    def integers(self, wanted: int) -> list[int]:
        values: list[int] = []
        for number, wire, at, stop in self.fields:
            if number == wanted and wire in (VARINT, BYTES):
                values += [at] if wire == VARINT else self.reader.varints(at, stop)
        return [value - (1 << 64) if value >= 1 << 63 else value for value in values]


def read_graph(model: bytes, *, name: str = "the model") -> Graph:
    """Return weights (arrays that share the model's memory) and operations of a serialised model.

    Raises ModelFileError for bytes that are no model. Tensors of types that no weight has are left out.
    """
    reader = Reader(name, model)
    found = _Message(reader, 0, len(model)).messages(7)
    if len(found) != 1:
        raise reader.broken(f"{len(found)} graphs")
    graph = found[0]
    weights: dict[str, Array] = {}
    for message in graph.messages(5):
        _keep(weights, message.text(8), message)
    nodes = []
    for message in graph.messages(1):
        node = Node(message.text(4), message.text(3), message.texts(1), message.texts(2))
        nodes.append(node)
        if node.op == "Constant" and node.outputs:
            for attribute in message.messages(5):
                for tensor in attribute.messages(5):
                    _keep(weights, node.outputs[0], tensor)
    return Graph(weights, nodes, [message.text(1) for message in graph.messages(12)])


def _keep(weights: dict[str, Array], name: str, tensor: _Message) -> None:
    reader = tensor.reader
    kind = next(iter(tensor.integers(2)), 0)
    if kind not in _DTYPES:
        return
    shape = tensor.integers(1)
    if any(size < 0 for size in shape):
        raise reader.broken("a tensor with impossible dimensions")
    raw = tensor.spans(9)
    if raw:
        at, stop = raw[-1]
        values = np.frombuffer(memoryview(reader.data)[at:stop], dtype=np.uint8)
    elif kind == _FLOAT:
        values = np.frombuffer(b"".join(reader.data[at:stop] for at, stop in tensor.spans(4)), dtype=np.uint8)
    else:
        listed = np.array(tensor.integers(_INTEGERS[kind]), dtype=np.int64)
        values = listed.astype(_DTYPES[kind]).view(np.uint8)
    if values.size != math.prod(shape) * np.dtype(_DTYPES[kind]).itemsize:
        raise reader.broken(f"a tensor {name[:60]!r} whose bytes do not bear out its shape")
    weights[name] = values.view(_DTYPES[kind]).reshape(shape)
