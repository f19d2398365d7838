"""Whether an ONNX file is safe to hand to the runtime: self-contained, well-formed, weights that are numbers.

Walks ModelProto (onnx.proto3) without the onnx package. Each place a tensor can hide is followed:
initializers, sparse initializers, attributes of nodes, subgraphs, functions, training graphs.
"""

from __future__ import annotations

from typing import Final

from resift.errors import ModelFileError
from resift.models.onnx_tensor import inspect_sparse_dims, inspect_tensor
from resift.models.protobuf import BYTES, FIXED32, Reader
from resift.models.weights import check_finite

_MAX_DEPTH = 48
_MODEL_FIELDS = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26})
_GRAPH = 7

_INSIDE: Final[dict[str, dict[int, str]]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
}
"""Which fields of a message hold which messages; every other field holds nothing that loads a file."""

_OP_TYPE = 4
_FLOAT_ATTRIBUTES = frozenset({2, 7})
_FORBIDDEN_OPS = frozenset({"EPContext", "PyOp"})


def inspect_onnx(name: str, data: bytes) -> None:
    """Raise `ModelFileError` with the reason if the graph must not be loaded."""
    reader = Reader(name, data)
    has_graph = False
    waiting: list[tuple[str, int, int, int]] = [("model", 0, len(data), 0)]
    while waiting:
        kind, start, end, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise reader.broken(f"graphs nested deeper than {_MAX_DEPTH} messages")
        if kind == "tensor":
            inspect_tensor(reader, start, end)
            continue
        if kind == "sparse":
            inspect_sparse_dims(reader, start, end)
        inside = _INSIDE[kind]
        for number, wire, at, stop in reader.fields(start, end):
            _check_field(reader, kind, (number, wire, at, stop))
            if wire == BYTES and number in inside:
                waiting.append((inside[number], at, stop, depth + 1))
            has_graph = has_graph or (kind == "model" and number == _GRAPH)
    if not has_graph:
        raise reader.broken("no graph")


def _check_field(reader: Reader, kind: str, field: tuple[int, int, int, int]) -> None:
    number, wire, at, stop = field
    if kind == "model" and number not in _MODEL_FIELDS:
        raise reader.broken(f"a field {number} that no ONNX model has")
    if kind == "node" and number == _OP_TYPE and wire == BYTES:
        op = reader.text(at, stop)
        if op in _FORBIDDEN_OPS:
            raise ModelFileError(
                f"{reader.name!r} holds a {op} node, which runs code or files from elsewhere."
            )
    if kind == "attribute" and number in _FLOAT_ATTRIBUTES and wire in (BYTES, FIXED32):
        check_finite(f"{reader.name!r}, an attribute,", memoryview(reader.data)[at:stop], "float32")
