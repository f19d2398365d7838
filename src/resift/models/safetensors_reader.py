"""Tensors of safetensors files as read-only arrays on the verified bytes; bfloat16 comes as uint16."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from pathlib import Path

from resift._internal.arrays import Array, np
from resift.errors import ModelFileError

_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def map_file(path: Path) -> memoryview:
    """Memory-map a file for reading; pages are loaded when they are used."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read_tensors(name: str, data: memoryview) -> dict[str, Array]:
    """Return the float tensors of a file that `inspect_safetensors` has accepted."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8 : 8 + length]))
    body = data[8 + length :]
    tensors: dict[str, Array] = {}
    for key, row in header.items():
        if key == "__metadata__":
            continue
        if row["dtype"] not in _DTYPES:
            if row["dtype"] in ("I64", "I32", "BOOL", "U8"):
                continue  # buffers such as position_ids
            raise ModelFileError(
                f"{name!r}, tensor {key[:60]!r}, has the type {row['dtype']}. Supported: F32, F16 and BF16."
            )
        start, stop = row["data_offsets"]
        tensors[key] = np.frombuffer(body[start:stop], dtype=_DTYPES[row["dtype"]]).reshape(row["shape"])
    return tensors


def merge_shards(shards: Mapping[str, dict[str, Array]]) -> dict[str, Array]:
    """Return the tensors of several files; raises ModelFileError for a tensor that two of them have."""
    merged: dict[str, Array] = {}
    for name, tensors in shards.items():
        for key, array in tensors.items():
            if key in merged:
                raise ModelFileError(
                    f"The tensor {key[:60]!r} is in {name!r} and in another file of the model."
                )
            merged[key] = array
    return merged
