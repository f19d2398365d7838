"""Serialised ONNX graphs from nodes and arrays, for tests that need a graph of their own. No onnx package."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.models.hostile_files import number, part, varint

Attribute = int | float | tuple[int, ...] | np.ndarray
DATA_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}


@dataclass(slots=True)
class Node:
    """One operation of a graph."""

    op: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    name: str = ""
    domain: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


Shapes = Mapping[str, Sequence[int | str]]


def write_model(nodes: Sequence[Node], weights: Mapping[str, np.ndarray], *, inputs: Shapes, outputs: Shapes) -> bytes:
    """Return a serialised model with int64 inputs and float outputs of these shapes."""
    graph = b"".join(
        [
            *(part(1, _node(node)) for node in nodes),
            part(2, "resift"),
            *(part(5, write_tensor(name, array)) for name, array in weights.items()),
            *(part(11, _value(name, "int64", shape)) for name, shape in inputs.items()),
            *(part(12, _value(name, "float32", shape)) for name, shape in outputs.items()),
        ]
    )
    opsets = part(8, part(1, "") + number(2, 17)) + part(8, part(1, "com.microsoft") + number(2, 1))
    return number(1, 8) + part(2, "resift") + part(7, graph) + opsets


def write_tensor(name: str, array: np.ndarray) -> bytes:
    """Return one TensorProto."""
    shape = b"".join(number(1, size) for size in array.shape)
    return shape + number(2, DATA_TYPES[array.dtype.name]) + part(8, name) + part(9, array.tobytes())


def _node(node: Node) -> bytes:
    parts = [part(1, name) for name in node.inputs] + [part(2, name) for name in node.outputs]
    parts += [part(3, node.name), part(4, node.op)]
    parts += [part(5, part(1, name) + _attribute(value)) for name, value in node.attributes.items()]
    return b"".join([*parts, part(7, node.domain)])


def _attribute(value: Attribute) -> bytes:
    if isinstance(value, np.ndarray):
        return part(5, write_tensor("", value)) + number(20, 4)
    if isinstance(value, float):
        return varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, tuple):
        return b"".join(number(8, item) for item in value) + number(20, 7)
    return number(3, value) + number(20, 2)


def _value(name: str, dtype: str, shape: Sequence[int | str]) -> bytes:
    sizes = (number(1, size) if isinstance(size, int) else part(2, size) for size in shape)
    tensor = number(1, DATA_TYPES[dtype]) + part(2, b"".join(part(1, size) for size in sizes))
    return part(1, name) + part(2, part(1, tensor))
