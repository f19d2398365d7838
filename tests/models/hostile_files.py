"""Hand-made model files: a small protobuf encoder, an ONNX builder, a folder builder. No onnx package."""

from __future__ import annotations

import json
import struct
from pathlib import Path

FLOAT, UINT8, INT64, FLOAT16, BFLOAT16 = 1, 2, 7, 10, 16


def varint(value: int) -> bytes:
    out = bytearray()
    value &= 0xFFFF_FFFF_FFFF_FFFF
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def part(field: int, body: bytes | str) -> bytes:
    raw = body.encode() if isinstance(body, str) else body
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def tensor(raw: bytes = b"", *, dims: tuple[int, ...] = (), data_type: int = FLOAT, more: bytes = b"") -> bytes:
    shape = b"".join(number(1, size) for size in dims)
    return shape + number(2, data_type) + part(8, "w") + (part(9, raw) if raw else b"") + more


def external(location: str) -> bytes:
    entry = part(1, "location") + part(2, location)
    return tensor(dims=(1,), more=part(13, entry) + number(14, 1))


def node(op: str = "Identity", *, attributes: bytes = b"") -> bytes:
    return part(1, "x") + part(2, "y") + part(4, op) + attributes


def graph(*, nodes: tuple[bytes, ...] = (), initializers: tuple[bytes, ...] = (), more: bytes = b"") -> bytes:
    return b"".join(part(1, n) for n in nodes) + part(2, "g") + b"".join(part(5, t) for t in initializers) + more


def model(body: bytes | None = None, *, more: bytes = b"") -> bytes:
    body = graph(nodes=(node(),), initializers=(tensor(floats(1, 2), dims=(2,)),)) if body is None else body
    return number(1, 8) + part(2, "tests") + part(7, body) + part(8, number(2, 17)) + more


def safetensors(
    values: tuple[float, ...] = (1.0, 2.0), *, header: dict | None = None, length: int | None = None
) -> bytes:
    body = floats(*values)
    table = header or {"w": {"dtype": "F32", "shape": [len(values)], "data_offsets": [0, len(body)]}}
    raw = json.dumps(table).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + body


def folder(path: Path, **files: bytes) -> Path:
    """Make a plausible model folder; keywords replace or add files, `__` stands for a dot."""
    path.mkdir(parents=True, exist_ok=True)
    given = {name.replace("__", "."): data for name, data in files.items()}
    for name, data in {"model.onnx": model(), "tokenizer.json": b'{"version": "1.0"}', **given}.items():
        (path / name).write_bytes(data)
    return path
