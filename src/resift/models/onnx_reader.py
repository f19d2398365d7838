"""Read ONNX files without the onnx package (fields as in onnx.proto3): bounded parsing, inspection, and weights."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from resift._internal.arrays import Array, np
from resift.errors import ModelFileError
from resift.models.inspection import check_finite

# --- Protobuf -----------------------------------------------------------------------------------------------

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MAX_FIELDS = 2_000_000
_CONTINUATION_BIT = 0x80  # set in a varint's byte if another byte follows

Field = tuple[int, int, int, int]
"""Field number, wire type, start, end. For a varint, start is its value and end is unused."""


class ProtobufReader:
    """Iterates over the fields of one file, with a limit that no reasonable file exceeds."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.data = data
        self._remaining_fields = _MAX_FIELDS

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """Yield the fields of the message between start and end."""
        pos, data = start, self.data
        while pos < end:
            self._count_field()
            # Most tags and sizes fit in one byte.
            tag, pos = (data[pos], pos + 1) if data[pos] < _CONTINUATION_BIT else self.read_varint(pos, end)
            number, wire = tag >> 3, tag & 7
            if not 0 < number < 1 << 29:
                raise self.error("an impossible field number")
            if wire == VARINT:
                value, pos = self.read_varint(pos, end)
                yield number, wire, value, pos
                continue
            if wire == BYTES and pos < end and data[pos] < _CONTINUATION_BIT:
                size, pos = data[pos], pos + 1
            elif wire == BYTES:
                size, pos = self.read_varint(pos, end)
            elif wire in (FIXED64, FIXED32):
                size = 8 if wire == FIXED64 else 4
            else:
                # Groups were deprecated twenty years ago; no exporter writes them.
                raise self.error(f"wire type {wire}")
            if size > end - pos:
                raise self.error(f"a field that claims {size:,} bytes when only {end - pos:,} are left")
            yield number, wire, pos, pos + size
            pos += size

    def read_varint(self, pos: int, end: int) -> tuple[int, int]:
        """Return the varint at a position and the position after it."""
        value = 0
        for shift in range(0, 70, 7):
            if pos >= end:
                raise self.error("a truncated number")
            byte = self.data[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < _CONTINUATION_BIT:
                return value & 0xFFFF_FFFF_FFFF_FFFF, pos
        raise self.error("a number longer than ten bytes")

    def read_integers(self, wire: int, start: int, end: int) -> list[int]:
        """Return the values of a repeated integer field, packed or not."""
        if wire == VARINT:
            return [start]
        values: list[int] = []
        pos = start
        while wire == BYTES and pos < end:
            self._count_field()
            value, pos = self.read_varint(pos, end)
            values.append(value)
        return values

    def text(self, start: int, end: int) -> str:
        """Return at most 300 characters of a string; invalid bytes are replaced."""
        return self.data[start : min(end, start + 300)].decode("utf-8", errors="replace")

    def error(self, problem: str) -> ModelFileError:
        """Return the error for a malformed file."""
        return ModelFileError(f"{self.name!r} is not a usable ONNX file: it has {problem}.")

    def _count_field(self) -> None:
        self._remaining_fields -= 1
        if self._remaining_fields < 0:
            raise self.error(f"more than {_MAX_FIELDS:,} fields")


# --- Inspection of a whole file -----------------------------------------------------------------------------

_MAX_DEPTH = 48
_MODEL_FIELDS = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26})
_GRAPH = 7
_OP_TYPE = 4
_FLOAT_ATTRIBUTES = frozenset({2, 7})
_FORBIDDEN_OPS = frozenset({"EPContext", "PyOp"})

_SUBMESSAGES: Final[dict[str, dict[int, str]]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
}
"""Fields that contain messages. Together they cover every place where a tensor can occur."""


def inspect_onnx(name: str, data: bytes) -> None:
    """Raise `ModelFileError` with the reason if the graph must not be loaded."""
    reader = ProtobufReader(name, data)
    has_graph = False
    pending: list[tuple[str, int, int, int]] = [("model", 0, len(data), 0)]
    while pending:
        message, start, end, depth = pending.pop()
        if depth > _MAX_DEPTH:
            raise reader.error(f"graphs nested deeper than {_MAX_DEPTH} messages")
        if message == "tensor":
            inspect_tensor(reader, start, end)
            continue
        if message == "sparse":
            # The runtime allocates the dense form.
            spans = [span for number, *span in reader.fields(start, end) if number == _SPARSE_DIMS]
            dims = [size for span in spans for size in reader.read_integers(*span)]
            if _count_elements(reader, dims) > _MAX_DENSE_ELEMENTS:
                raise reader.error(f"a sparse tensor that expands to more than {_MAX_DENSE_ELEMENTS:,} values")
        submessages = _SUBMESSAGES[message]
        for number, wire, pos, stop in reader.fields(start, end):
            if message == "model" and number not in _MODEL_FIELDS:
                raise reader.error(f"a field {number} that ONNX does not define")
            if message == "node" and number == _OP_TYPE and wire == BYTES:
                op = reader.text(pos, stop)
                if op in _FORBIDDEN_OPS:
                    raise ModelFileError(f"{name!r} has a {op} node, which runs external code or files.")
            if message == "attribute" and number in _FLOAT_ATTRIBUTES and wire in (BYTES, FIXED32):
                check_finite(f"{name!r}, an attribute,", memoryview(data)[pos:stop], "float32")
            if wire == BYTES and number in submessages:
                pending.append((submessages[number], pos, stop, depth + 1))
            has_graph = has_graph or (message == "model" and number == _GRAPH)
    if not has_graph:
        raise reader.error("no graph")


# --- Inspection of one TensorProto --------------------------------------------------------------------------

_DIMS, _TYPE, _FLOATS, _INT32S, _STRINGS, _INT64S, _NAME, _RAW, _DOUBLES, _UINT64S, _EXTERNAL, _LOCATION = (
    1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14,
)  # fmt: skip
_SPARSE_DIMS = 3
_MAX_ELEMENTS = 1 << 31
_MAX_DENSE_ELEMENTS = 1 << 28
_BITS: Final = {
    1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128,
    16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8,
}  # fmt: skip
_STRING_TYPE = 8
_HIGH_BYTES: Final = bytes(range(128, 256))
_FLOAT_TYPES: Final = {
    1: "float32", 10: "float16", 11: "float64", 14: "float32", 15: "float64", 16: "bfloat16",
}  # fmt: skip


@dataclass(slots=True)
class _Tensor:
    """The fields of one tensor, with data as spans of the file."""

    dims: list[int] = field(default_factory=list)
    data_type: int = 0
    name: str = ""
    raw: tuple[int, int] | None = None
    floats: list[tuple[int, int]] = field(default_factory=list)
    doubles: list[tuple[int, int]] = field(default_factory=list)
    int32s: list[tuple[int, int, int]] = field(default_factory=list)
    int64s: list[tuple[int, int, int]] = field(default_factory=list)
    other_values: int = 0


def inspect_tensor(reader: ProtobufReader, start: int, end: int) -> None:
    """Reject a tensor that has external data, a size that does not match its bytes, NaN or infinity."""
    tensor = _read_tensor(reader, start, end)
    label = f"{reader.name!r}, tensor {tensor.name[:60]!r},"
    count = _count_elements(reader, tensor.dims)
    if tensor.data_type not in _BITS and tensor.data_type != _STRING_TYPE:
        raise ModelFileError(f"{label} has the unknown data type {tensor.data_type}.")
    if tensor.raw is not None:
        expected = -(-count * _BITS.get(tensor.data_type, 0) // 8)
        actual = tensor.raw[1] - tensor.raw[0]
        if expected != actual:
            raise ModelFileError(f"{label} claims {expected:,} bytes but has {actual:,}.")
    else:
        stored = tensor.other_values
        stored += sum(stop - pos for pos, stop in tensor.floats) // 4
        stored += sum(stop - pos for pos, stop in tensor.doubles) // 8
        # Complex numbers take two values each, and four-bit types pack several into one. An upper bound is
        # sufficient, because its purpose is to stop a small file from claiming a large tensor.
        if count > 8 * stored:
            raise ModelFileError(f"{label} claims {count:,} values but has {stored:,}.")
    _check_tensor_is_finite(reader, label, tensor)


def _read_tensor(reader: ProtobufReader, start: int, end: int) -> _Tensor:
    tensor = _Tensor()
    for number, wire, pos, stop in reader.fields(start, end):
        if number == _EXTERNAL or (number == _LOCATION and wire == VARINT and pos != 0):
            raise _external_data_error(reader, number, wire, pos, stop)
        if number == _DIMS:
            tensor.dims += reader.read_integers(wire, pos, stop)
        elif number == _TYPE and wire == VARINT:
            tensor.data_type = pos
        elif number == _NAME and wire == BYTES:
            tensor.name = reader.text(pos, stop)
        elif number == _RAW and wire == BYTES:
            tensor.raw = (pos, stop)
        elif number == _FLOATS and wire in (BYTES, FIXED32):
            tensor.floats.append((pos, stop))
        elif number == _DOUBLES and wire in (BYTES, FIXED64):
            tensor.doubles.append((pos, stop))
        elif number in (_INT32S, _INT64S, _UINT64S):
            if wire == VARINT:
                tensor.other_values += 1
            elif wire == BYTES:
                # Each packed number ends in a byte below 128, so count those bytes instead of decoding.
                tensor.other_values += len(reader.data[pos:stop].translate(None, _HIGH_BYTES))
            if number != _UINT64S:
                (tensor.int32s if number == _INT32S else tensor.int64s).append((wire, pos, stop))
        elif number == _STRINGS:
            tensor.other_values += 1
    return tensor


def _count_elements(reader: ProtobufReader, dims: list[int]) -> int:
    # A negative dimension is encoded as a number of 2**63 or more.
    if len(dims) > 64 or any(size >= 1 << 63 for size in dims):
        raise reader.error("a tensor with impossible dimensions")
    count = math.prod(dims)
    if count > _MAX_ELEMENTS:
        raise reader.error(f"a tensor that claims {count:,} values")
    return count


def _check_tensor_is_finite(reader: ProtobufReader, label: str, tensor: _Tensor) -> None:
    data = memoryview(reader.data)
    check_finite(label, b"".join(data[pos:stop] for pos, stop in tensor.floats), "float32")
    check_finite(label, b"".join(data[pos:stop] for pos, stop in tensor.doubles), "float64")
    dtype = _FLOAT_TYPES.get(tensor.data_type)
    if dtype is None:
        return
    if tensor.raw is not None:
        check_finite(label, data[tensor.raw[0] : tensor.raw[1]], dtype)
    if dtype in ("float16", "bfloat16") and tensor.int32s:
        # Half floats outside raw_data are stored as bit patterns.
        values = [value for span in tensor.int32s for value in reader.read_integers(*span)]
        check_finite(label, b"".join((value & 0xFFFF).to_bytes(2, "little") for value in values), dtype)


def _external_data_error(reader: ProtobufReader, number: int, wire: int, start: int, end: int) -> ModelFileError:
    location = ""
    if number == _EXTERNAL and wire == BYTES:
        entry = {i: reader.text(pos, stop) for i, kind, pos, stop in reader.fields(start, end) if kind == BYTES}
        if entry.get(1) == "location":
            location = f" ({entry.get(2, '')[:80]!r})"
    return ModelFileError(
        f"{reader.name!r} stores weights in another file{location}, which could be any file on this machine. "
        "It is never loaded; save the model with its weights inside."
    )


# --- Reading the graph --------------------------------------------------------------------------------------

_FLOAT, _INT64 = 1, 7
_DTYPES = {_FLOAT: "<f4", 2: "u1", 3: "i1", 6: "<i4", _INT64: "<i8"}


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One operation in a graph."""

    op: str
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]


@dataclass(frozen=True, slots=True)
class OnnxGraph:
    """Weights and constants by name, and operations in order."""

    weights: dict[str, Array]
    nodes: list[GraphNode]


def read_graph(model: bytes, *, name: str = "the model") -> OnnxGraph:
    """Return the operations and weights of a serialized model; tensors of unsupported types are skipped."""
    reader = ProtobufReader(name, model)
    graphs = _byte_fields(reader, 0, len(model))[_GRAPH]
    if len(graphs) != 1:
        raise reader.error(f"{len(graphs)} graphs")
    graph = _byte_fields(reader, *graphs[0])
    weights: dict[str, Array] = {}
    for span in graph[5]:
        tensor = _read_tensor(reader, *span)
        _add_weight(reader, weights, tensor.name, tensor)
    nodes = []
    for span in graph[1]:
        fields = _byte_fields(reader, *span)
        inputs, outputs, names, ops = ([reader.text(*text) for text in fields[number]] for number in (1, 2, 3, 4))
        node = GraphNode("".join(ops[-1:]), "".join(names[-1:]), inputs, outputs)
        nodes.append(node)
        for attribute in fields[5] if node.op == "Constant" and outputs else ():
            for value in _byte_fields(reader, *attribute)[5]:
                _add_weight(reader, weights, outputs[0], _read_tensor(reader, *value))
    return OnnxGraph(weights, nodes)


def _byte_fields(reader: ProtobufReader, start: int, end: int) -> dict[int, list[tuple[int, int]]]:
    """Return the spans of the strings and submessages in a message, by field number."""
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, wire, pos, stop in reader.fields(start, end):
        if wire == BYTES:
            spans[number].append((pos, stop))
    return spans


def _add_weight(reader: ProtobufReader, weights: dict[str, Array], name: str, tensor: _Tensor) -> None:
    if tensor.data_type not in _DTYPES:
        return
    dtype = np.dtype(_DTYPES[tensor.data_type])
    count = _count_elements(reader, tensor.dims)
    data: bytes | memoryview
    if tensor.raw is not None:
        data = memoryview(reader.data)[slice(*tensor.raw)]
    elif tensor.data_type == _FLOAT:
        data = b"".join(reader.data[pos:stop] for pos, stop in tensor.floats)
    else:
        spans = tensor.int64s if tensor.data_type == _INT64 else tensor.int32s
        values = [value for span in spans for value in reader.read_integers(*span)]
        data = np.array(values, dtype=np.uint64).astype(np.int64).astype(dtype).tobytes()
    if len(data) != count * dtype.itemsize:
        raise reader.error(f"a tensor {name[:60]!r} whose size does not match its shape")
    weights[name] = np.frombuffer(data, dtype=dtype).reshape(tensor.dims)
