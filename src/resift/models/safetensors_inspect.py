"""Whether a safetensors file is well-formed and its weights are numbers.

Format: 8 bytes little-endian header length, a JSON header of tensor name to dtype, shape, offsets; the data.
"""

from __future__ import annotations

import math

from resift.errors import ModelFileError
from resift.models.json_inspect import parse_json
from resift.models.weights import check_finite
from resift.types import JsonValue

_MAX_HEADER = 64 << 20
_MAX_TENSORS = 100_000
_ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
_FLOATS = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}


def inspect_safetensors(name: str, data: bytes) -> None:
    """Raise `ModelFileError` with the reason if the file must not be loaded."""
    if len(data) < 8:
        raise ModelFileError(f"{name!r} is too short to be a safetensors file.")
    length = int.from_bytes(data[:8], "little")
    if length > min(_MAX_HEADER, len(data) - 8):
        raise ModelFileError(f"{name!r} claims a header of {length:,} bytes in a file of {len(data):,}.")
    header = parse_json(name, data[8 : 8 + length])
    if not isinstance(header, dict) or len(header) > _MAX_TENSORS:
        raise ModelFileError(f"{name!r} has a header that is no table of tensors.")
    body = memoryview(data)[8 + length :]
    spans = [_check_tensor(name, key, row, body) for key, row in header.items() if key != "__metadata__"]
    end = 0
    for start, stop in sorted(spans):
        if start != end:
            raise ModelFileError(f"{name!r} has tensors that overlap or leave a gap.")
        end = stop
    if end != len(body):
        raise ModelFileError(f"{name!r} holds {len(body) - end:,} bytes that belong to no tensor.")


def _check_tensor(name: str, key: str, row: object, body: memoryview) -> tuple[int, int]:
    label = f"{name!r}, tensor {key[:60]!r},"
    if not isinstance(row, dict) or row.get("dtype") not in _ITEM_BYTES:
        raise ModelFileError(f"{label} has no known dtype.")
    shape, span = _naturals(row.get("shape")), _naturals(row.get("data_offsets"))
    if shape is None or span is None or len(span) != 2:
        raise ModelFileError(f"{label} has no usable shape and offsets.")
    start, stop = span
    if not start <= stop <= len(body) or stop - start != math.prod(shape) * _ITEM_BYTES[row["dtype"]]:
        raise ModelFileError(
            f"{label} claims {stop - start:,} bytes, which its shape or the file does not bear out."
        )
    if row["dtype"] in _FLOATS:
        check_finite(label, body[start:stop], _FLOATS[row["dtype"]])
    return start, stop


def _naturals(value: JsonValue) -> list[int] | None:
    fits = (
        isinstance(value, list)
        and len(value) <= 16
        and all(type(n) is int and 0 <= n < 1 << 48 for n in value)
    )
    return value if fits else None
