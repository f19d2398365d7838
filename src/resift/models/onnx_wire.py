"""Just enough of ONNX's wire format to read weights from a graph and to write a new one. No dependency.

Field numbers are those of onnx.proto. Reading trusts its input: only verified bytes come here.
Large weights are not copied into a written graph: it names them, and the session is given their memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FLOAT, UINT8, INT8, INT64 = 1, 2, 3, 7
_DTYPES = {FLOAT: "<f4", UINT8: "u1", INT8: "i1", INT64: "<i8"}
_TYPED_DATA = {FLOAT: 4, UINT8: 5, INT8: 5, INT64: 7}

_IN_FILE = 4096
"""Weights up to this many bytes are written into the graph."""

Fields = dict[int, list[Any]]
Attribute = int | float | tuple[int, ...]


@dataclass(slots=True)
class Node:
    """One operation of a graph."""

    op: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    name: str = ""
    domain: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(slots=True)
class Graph:
    """A graph's weights and constants by name, and its operations in order."""

    weights: dict[str, Any]
    nodes: list[Node]


def read_graph(model: bytes, np: Any) -> Graph:
    """Return weights (arrays that share the model's memory) and operations of a serialised model."""
    graph = fields(fields(memoryview(model))[7][0])
    weights = dict(_tensor(fields(raw), np) for raw in graph.get(5, ()))
    nodes = []
    for found in map(fields, graph.get(1, ())):
        node = _node(found)
        nodes.append(node)
        if node.op == "Constant":
            weights[node.outputs[0]] = _constant(found, np)
    return Graph(weights, nodes)


def fields(data: memoryview) -> Fields:
    """Return the fields of one message: numbers as int, everything else as a view of its bytes."""
    found: Fields = {}
    for number, value in _walk(data):
        found.setdefault(number, []).append(value)
    return found


def _walk(data: memoryview) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}[kind]
        yield number, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _node(found: Fields) -> Node:
    def words(number: int) -> list[str]:
        return [bytes(value).decode() for value in found.get(number, ())]

    return Node("".join(words(4)), words(1), words(2), name="".join(words(3)), domain="".join(words(7)))


def _constant(found: Fields, np: Any) -> Any:
    attribute = fields(found[5][0])
    return _tensor(fields(attribute[5][0]), np)[1] if 5 in attribute else None


def _tensor(found: Fields, np: Any) -> tuple[str, Any]:
    name, kind = bytes(found[8][0]).decode() if 8 in found else "", found[2][0]
    shape = _integers(found.get(1, ()))
    if kind not in _DTYPES:
        return name, None
    if 9 in found:
        return name, np.frombuffer(found[9][0], dtype=_DTYPES[kind]).reshape(shape)
    data = found.get(_TYPED_DATA[kind], [])
    if kind == FLOAT:
        raw = b"".join(bytes(part) for part in data)
        return name, np.frombuffer(raw, dtype="<f4").reshape(shape)
    return name, np.array(_integers(data)).astype(_DTYPES[kind]).reshape(shape)


def _integers(values: Sequence[Any]) -> list[int]:
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            found.append(number)
    return [number - (1 << 64) if number >= 1 << 63 else number for number in found]


def write_model(
    nodes: Sequence[Node],
    weights: Mapping[str, Any],
    *,
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Mapping[str, Sequence[int | str]],
) -> bytes:
    """Return a serialised model with int64 inputs and float outputs of these shapes.

    Weights that `is_outside` says yes to are only named in it.
    """
    graph = b"".join(
        [
            *(_bytes(1, _write_node(node)) for node in nodes),
            _bytes(2, b"resift"),
            *(_bytes(5, _write_tensor(name, array)) for name, array in weights.items()),
            *(_bytes(11, _write_value(name, INT64, shape)) for name, shape in inputs.items()),
            *(_bytes(12, _write_value(name, FLOAT, shape)) for name, shape in outputs.items()),
        ]
    )
    standard = _bytes(8, _bytes(1, b"") + _number(2, 17))
    fused = _bytes(8, _bytes(1, b"com.microsoft") + _number(2, 1))
    return _number(1, 8) + _bytes(2, b"resift") + _bytes(7, graph) + standard + fused


def _write_node(node: Node) -> bytes:
    parts = [_bytes(1, name.encode()) for name in node.inputs]
    parts += [_bytes(2, name.encode()) for name in node.outputs]
    parts += [_bytes(3, node.name.encode()), _bytes(4, node.op.encode())]
    parts += [_bytes(5, _write_attribute(name, value)) for name, value in node.attributes.items()]
    return b"".join([*parts, _bytes(7, node.domain.encode())])


def _write_attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        return _bytes(1, name.encode()) + _key(2, 5) + struct.pack("<f", value) + _number(20, 1)
    if isinstance(value, tuple):
        return _bytes(1, name.encode()) + b"".join(_number(8, item) for item in value) + _number(20, 7)
    return _bytes(1, name.encode()) + _number(3, value) + _number(20, 2)


def _write_tensor(name: str, array: Any) -> bytes:
    kind = next(number for number, dtype in _DTYPES.items() if array.dtype == dtype)
    head = b"".join(_number(1, size) for size in array.shape) + _number(2, kind) + _bytes(8, name.encode())
    if not is_outside(array):
        return head + _bytes(9, array.tobytes())
    # The location is never opened: the session gets the values by name before it would look.
    return head + _bytes(13, _bytes(1, b"location") + _bytes(2, b"memory")) + _number(14, 1)


def is_outside(array: Any) -> bool:
    """Whether a weight is too large to be copied into a written graph."""
    return bool(array.nbytes > _IN_FILE)


def _write_value(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    sizes = (_number(1, size) if isinstance(size, int) else _bytes(2, size.encode()) for size in shape)
    tensor = _number(1, kind) + _bytes(2, b"".join(_bytes(1, size) for size in sizes))
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, tensor))


def _key(number: int, kind: int) -> bytes:
    return _write_varint(number << 3 | kind)


def _number(number: int, value: int) -> bytes:
    return _key(number, 0) + _write_varint(value & (1 << 64) - 1)


def _bytes(number: int, data: bytes) -> bytes:
    return _key(number, 2) + _write_varint(len(data)) + data


def _write_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
