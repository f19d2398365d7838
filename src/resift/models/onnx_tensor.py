"""One TensorProto: no external data, a size that its bytes bear out, weights that are numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from resift.errors import ModelFileError
from resift.models.protobuf import BYTES, FIXED32, FIXED64, VARINT, Reader
from resift.models.weights import check_finite

_DIMS, _TYPE, _FLOATS, _INT32S, _STRINGS, _INT64S, _NAME, _RAW, _DOUBLES, _UINT64S, _EXTERNAL, _LOCATION = (
    1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14,
)  # fmt: skip
_MAX_ELEMENTS = 1 << 31
_MAX_DENSE = 1 << 28

_BITS: Final = {
    1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128,
    16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8,
}  # fmt: skip
_STRING_TYPE = 8
_HIGH: Final = bytes(range(128, 256))
_RAW_FLOATS: Final = {
    1: "float32",
    10: "float16",
    11: "float64",
    14: "float32",
    15: "float64",
    16: "bfloat16",
}


@dataclass(slots=True)
class _Tensor:
    """What was read of one tensor; data as spans of the file."""

    dims: list[int] = field(default_factory=list)
    data_type: int = 0
    name: str = ""
    raw: tuple[int, int] | None = None
    floats: list[tuple[int, int]] = field(default_factory=list)
    doubles: list[tuple[int, int]] = field(default_factory=list)
    int32s: list[tuple[int, int, int]] = field(default_factory=list)
    others: int = 0


def inspect_tensor(reader: Reader, start: int, end: int) -> None:
    """Raise `ModelFileError` with the reason if the tensor must not be loaded."""
    tensor = _read(reader, start, end)
    label = f"{reader.name!r}, tensor {tensor.name[:60]!r},"
    count = _count(reader, tensor.dims)
    if tensor.data_type not in _BITS and tensor.data_type != _STRING_TYPE:
        raise ModelFileError(f"{label} has the unknown data type {tensor.data_type}.")
    _check_size(label, tensor, count)
    _check_numbers(reader, label, tensor)


def inspect_sparse_dims(reader: Reader, start: int, end: int) -> None:
    """Refuse a sparse tensor whose dense form, which the runtime builds, would be enormous."""
    dims: list[int] = []
    for number, wire, at, stop in reader.fields(start, end):
        if number == 3:
            dims += _numbers(reader, wire, at, stop)
    if _count(reader, dims) > _MAX_DENSE:
        raise reader.broken(f"a sparse tensor that unpacks to more than {_MAX_DENSE:,} values")


def _read(reader: Reader, start: int, end: int) -> _Tensor:
    tensor = _Tensor()
    for number, wire, at, stop in reader.fields(start, end):
        if number == _EXTERNAL or (number == _LOCATION and wire == VARINT and at != 0):
            raise _external(reader, number, wire, at, stop)
        if number == _DIMS:
            tensor.dims += _numbers(reader, wire, at, stop)
        elif number == _TYPE and wire == VARINT:
            tensor.data_type = at
        elif number == _NAME and wire == BYTES:
            tensor.name = reader.text(at, stop)
        elif number == _RAW and wire == BYTES:
            tensor.raw = (at, stop)
        else:
            _read_values(reader, tensor, (number, wire, at, stop))
    return tensor


def _read_values(reader: Reader, tensor: _Tensor, found: tuple[int, int, int, int]) -> None:
    number, wire, at, stop = found
    if number == _FLOATS and wire in (BYTES, FIXED32):
        tensor.floats.append((at, stop))
    elif number == _DOUBLES and wire in (BYTES, FIXED64):
        tensor.doubles.append((at, stop))
    elif number in (_INT32S, _INT64S, _UINT64S):
        tensor.others += _how_many(reader, wire, at, stop)
        if number == _INT32S:
            tensor.int32s.append((wire, at, stop))
    elif number == _STRINGS:
        tensor.others += 1


def _numbers(reader: Reader, wire: int, at: int, stop: int) -> list[int]:
    """Return a repeated integer field's values, packed or not."""
    if wire == VARINT:
        return [at]
    return reader.varints(at, stop) if wire == BYTES else []


def _how_many(reader: Reader, wire: int, at: int, stop: int) -> int:
    """Count a repeated integer field's values without decoding them: each ends in a byte below 128."""
    if wire == VARINT:
        return 1
    return len(reader.data[at:stop].translate(None, _HIGH)) if wire == BYTES else 0


def _count(reader: Reader, dims: list[int]) -> int:
    # A negative dimension arrives as a number above 2**63.
    if len(dims) > 64 or any(size >= 1 << 63 for size in dims):
        raise reader.broken("a tensor with impossible dimensions")
    count = math.prod(dims)
    if count > _MAX_ELEMENTS:
        raise reader.broken(f"a tensor that claims {count:,} values")
    return count


def _check_size(label: str, tensor: _Tensor, count: int) -> None:
    if tensor.raw is not None:
        bits = _BITS.get(tensor.data_type, 0)
        wanted = -(-count * bits // 8)
        held = tensor.raw[1] - tensor.raw[0]
        if wanted != held:
            raise ModelFileError(f"{label} claims {wanted:,} bytes and holds {held:,}.")
        return
    stored = tensor.others
    stored += sum(stop - at for at, stop in tensor.floats) // 4
    stored += sum(stop - at for at, stop in tensor.doubles) // 8
    # Complex numbers take two values each, four-bit types pack several into one: an exact count is not
    # needed, only that a small file cannot claim a large tensor.
    if count > 8 * stored:
        raise ModelFileError(f"{label} claims {count:,} values and holds {stored:,}.")


def _check_numbers(reader: Reader, label: str, tensor: _Tensor) -> None:
    data = memoryview(reader.data)
    check_finite(label, b"".join(data[at:stop] for at, stop in tensor.floats), "float32")
    check_finite(label, b"".join(data[at:stop] for at, stop in tensor.doubles), "float64")
    kind = _RAW_FLOATS.get(tensor.data_type)
    if kind is None:
        return
    if tensor.raw is not None:
        check_finite(label, data[tensor.raw[0] : tensor.raw[1]], kind)
    if kind in ("float16", "bfloat16") and tensor.int32s:
        # Half floats outside raw_data are stored as their bit patterns.
        values = [value for span in tensor.int32s for value in _numbers(reader, *span)]
        check_finite(label, b"".join((value & 0xFFFF).to_bytes(2, "little") for value in values), kind)


def _external(reader: Reader, number: int, wire: int, at: int, stop: int) -> ModelFileError:
    where = ""
    if number == _EXTERNAL and wire == BYTES:
        pairs = [_entry(reader, at, stop)]
        where = next((f" ({value[:80]!r})" for key, value in pairs if key == "location"), "")
    return ModelFileError(
        f"{reader.name!r} keeps weights in another file{where}, which could be any file of this machine. "
        "It is never loaded; save the model with its weights inside."
    )


def _entry(reader: Reader, start: int, end: int) -> tuple[str, str]:
    key = value = ""
    for number, wire, at, stop in reader.fields(start, end):
        if wire == BYTES and number == 1:
            key = reader.text(at, stop)
        elif wire == BYTES and number == 2:
            value = reader.text(at, stop)
    return key, value
