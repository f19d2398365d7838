"""Inspect model files before they are loaded, so that none runs code or exhausts memory, and read safetensors."""

from __future__ import annotations

import json
import math
import mmap
import re
from pathlib import Path, PurePosixPath
from typing import NoReturn, TypeGuard

from resift._internal.arrays import Array, np
from resift.errors import ModelFileError
from resift.types import JsonObject, JsonValue

_MAGIC_BYTES = (
    (b"\x80\x02", "a pickle"),
    (b"\x80\x03", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
    (b"PK\x03\x04", "a zip archive (PyTorch checkpoints are zipped pickles)"),
    (b"PK\x05\x06", "a zip archive"),
    (b"\x1f\x8b", "a gzip file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\x00", "an xz file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x93NUMPY", "a numpy file"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"#!", "a script"),
    (b"version https://git-lfs", "a git-lfs pointer: download the file itself"),
)


def inspect_file(name: str, data: bytes) -> None:
    """Raise `ModelFileError` with the reason if a file with this name and content must not be loaded."""
    for magic, actual_type in _MAGIC_BYTES:
        if data.startswith(magic):
            raise ModelFileError(f"{name!r} is {actual_type}, despite its name. It is never loaded.")
    if data[4:8] == b"ORTM":
        raise ModelFileError(f"{name!r} is in ONNX Runtime's own format, which cannot be inspected. Use the ONNX file.")
    if data[257:262] == b"ustar":
        raise ModelFileError(f"{name!r} is a tar archive, despite its name. It is never loaded.")
    suffix = PurePosixPath(name).suffix.lower()
    if suffix == ".onnx":
        from resift.models.onnx_reader import inspect_onnx

        inspect_onnx(name, data)
    elif suffix == ".safetensors":
        inspect_safetensors(name, data)
    elif suffix == ".json":
        parse_json(name, data)
    elif suffix == ".txt":
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise ModelFileError(f"{name!r} is not UTF-8 text.") from exc
        if "\0" in text:
            raise ModelFileError(f"{name!r} contains NUL bytes, so it is not text.")
    else:
        raise ModelFileError(f"{name!r} has a file type that is never loaded.")


# --- JSON ---------------------------------------------------------------------------------------------------

_MAX_JSON_BYTES = 64 << 20
_MAX_JSON_DEPTH = 64
_MAX_CONTAINERS = 2_000_000
_CODE_KEYS = frozenset({"auto_map", "trust_remote_code", "custom_pipelines", "custom_pipeline", "custom_code"})
_VOCABULARIES = frozenset({"tokenizer.json", "vocab.json", "added_tokens.json"})
# Possessive quantifiers, and matching an unterminated string as one string, keep the scan linear for any input.
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def parse_json(name: str, data: bytes) -> JsonValue:
    """Return the parsed JSON of a file; reject files that request remote code or could exhaust the parser."""
    if len(data) > _MAX_JSON_BYTES:
        raise ModelFileError(f"{name!r} has {len(data):,} bytes; the limit for JSON is {_MAX_JSON_BYTES:,}.")
    _check_json_depth(name, data)
    is_vocabulary = PurePosixPath(name).name in _VOCABULARIES

    def check_pairs(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
        # All pairs are checked, so a duplicate key cannot hide the first one.
        for key, value in pairs:
            # In a vocabulary, a key such as "auto_map" can be a token, with its id as the value.
            harmless = value is False or value is None or (is_vocabulary and type(value) is int)
            if key in _CODE_KEYS and not harmless:
                raise ModelFileError(f"{name!r} requests remote code ({key!r}). It is never loaded.")
        return dict(pairs)

    def reject_constant(constant: str) -> NoReturn:
        raise ModelFileError(f"{name!r} contains {constant}, which is not JSON.")

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=check_pairs, parse_constant=reject_constant)
    except (ValueError, RecursionError) as exc:
        raise ModelFileError(f"{name!r} is not valid JSON.") from exc


def _check_json_depth(name: str, data: bytes) -> None:
    """Count brackets outside strings, so that no parser recurses too deeply or allocates too much."""
    depth = containers = 0
    for match in _STRING_OR_BRACKET.finditer(data):
        char = data[match.start()]
        if char in b"[{":
            depth += 1
            containers += 1
            if depth > _MAX_JSON_DEPTH:
                raise ModelFileError(f"{name!r} is nested deeper than {_MAX_JSON_DEPTH} levels.")
            if containers > _MAX_CONTAINERS:
                raise ModelFileError(f"{name!r} has more than {_MAX_CONTAINERS:,} lists and objects.")
        elif char in b"]}":
            depth -= 1


# --- safetensors: header length (8 bytes, little-endian), JSON header (dtype, shape, offsets), data ---------

_MAX_HEADER_BYTES = 64 << 20
_MAX_TENSORS = 100_000
_ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
_FLOAT_TYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}


def inspect_safetensors(name: str, data: bytes | memoryview) -> tuple[JsonObject, memoryview]:
    """Return the header and the data, or raise `ModelFileError` with the reason if the file must not be loaded."""
    if len(data) < 8:
        raise ModelFileError(f"{name!r} is too short to be a safetensors file.")
    length = int.from_bytes(data[:8], "little")
    if length > min(_MAX_HEADER_BYTES, len(data) - 8):
        raise ModelFileError(f"{name!r} claims a header of {length:,} bytes in a file of {len(data):,}.")
    header = parse_json(name, bytes(data[8 : 8 + length]))
    if not isinstance(header, dict) or len(header) > _MAX_TENSORS:
        raise ModelFileError(f"{name!r} has a header that is not a table of tensors.")
    body = memoryview(data)[8 + length :]
    offsets = [_check_tensor(name, key, row, body) for key, row in header.items() if key != "__metadata__"]
    end = 0
    for start, stop in sorted(offsets):
        if start != end:
            raise ModelFileError(f"{name!r} has tensors that overlap or leave a gap.")
        end = stop
    if end != len(body):
        raise ModelFileError(f"{name!r} has {len(body) - end:,} bytes that belong to no tensor.")
    return header, body


def _check_tensor(name: str, key: str, row: object, body: memoryview) -> tuple[int, int]:
    label = f"{name!r}, tensor {key[:60]!r},"
    if not isinstance(row, dict) or not isinstance(row.get("dtype"), str) or row["dtype"] not in _ITEM_BYTES:
        raise ModelFileError(f"{label} has no known dtype.")
    shape, offsets = row.get("shape"), row.get("data_offsets")
    if not _is_natural_list(shape) or not _is_natural_list(offsets) or len(offsets) != 2:
        raise ModelFileError(f"{label} has no usable shape and offsets.")
    start, stop = offsets
    if not start <= stop <= len(body) or stop - start != math.prod(shape) * _ITEM_BYTES[row["dtype"]]:
        raise ModelFileError(f"{label} claims {stop - start:,} bytes, which does not match its shape or the file.")
    if row["dtype"] in _FLOAT_TYPES:
        check_finite(label, body[start:stop], _FLOAT_TYPES[row["dtype"]])
    return start, stop


def _is_natural_list(value: JsonValue) -> TypeGuard[list[int]]:
    return isinstance(value, list) and len(value) <= 16 and all(type(n) is int and 0 <= n < 1 << 48 for n in value)


# bfloat16 values are read as uint16.
_ARRAY_TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}


def map_file(path: Path) -> memoryview:
    """Memory-map a file for reading; pages are loaded on access."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read_tensors(name: str, data: memoryview) -> dict[str, Array]:
    """Inspect a safetensors file, and return its tensors as views of its bytes."""
    header, body = inspect_safetensors(name, data)
    tensors: dict[str, Array] = {}
    for key, row in header.items():
        if key == "__metadata__":
            continue
        dtype = _ARRAY_TYPES.get(row["dtype"])
        if dtype is None:
            raise ModelFileError(f"{name!r}, tensor {key[:60]!r}, is {row['dtype']}. Supported: F32, F16 and BF16.")
        start, stop = row["data_offsets"]
        tensors[key] = np.frombuffer(body[start:stop], dtype=dtype).reshape(row["shape"])
    return tensors


# --- Weights ------------------------------------------------------------------------------------------------

_VALUES_PER_CHECK = 1 << 22


def check_finite(label: str, raw: memoryview | bytes, dtype: str) -> None:
    """Reject NaN and infinity in little-endian floats. A single -inf is a mask constant and is accepted."""
    width = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}[dtype]
    if len(raw) % width:
        raise ModelFileError(f"{label} has {len(raw):,} bytes, which is not a multiple of the size of {dtype}.")
    for start in range(0, len(raw), _VALUES_PER_CHECK * width):
        chunk = raw[start : start + _VALUES_PER_CHECK * width]
        if dtype == "bfloat16":
            # bfloat16 is the upper half of a float32; NaN and infinity are preserved.
            values = (np.frombuffer(chunk, dtype="<u2").astype("<u4") << 16).view("<f4")
        else:
            values = np.frombuffer(chunk, dtype={"float16": "<f2", "float32": "<f4", "float64": "<f8"}[dtype])
        if bool(np.isfinite(values).all()):
            continue
        if len(raw) == width and bool(np.isneginf(values[0])):
            return
        raise ModelFileError(f"{label} contains a NaN or an infinite weight.")
