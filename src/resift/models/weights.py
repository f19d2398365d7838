"""Whether stored weights are numbers: a NaN or an infinity poisons every score it touches."""

from __future__ import annotations

from resift._internal.arrays import Array, np
from resift.errors import ModelFileError

_STEP = 1 << 22


def check_finite(label: str, raw: memoryview | bytes, dtype: str) -> None:
    """Refuse NaN and infinities in little-endian floats; one lone -inf is a mask constant and is fine."""
    width = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}[dtype]
    if len(raw) % width:
        raise ModelFileError(f"{label} holds {len(raw):,} bytes, which is no whole number of {dtype} values.")
    for start in range(0, len(raw), _STEP * width):
        values = _floats(raw[start : start + _STEP * width], dtype)
        if bool(np.isfinite(values).all()):
            continue
        if len(raw) == width and bool(np.isneginf(values[0])):
            return
        raise ModelFileError(f"{label} holds a NaN or an infinity where a weight should be.")


def _floats(raw: memoryview | bytes, dtype: str) -> Array:
    if dtype == "bfloat16":
        # The upper half of a float32, which keeps NaN and infinity what they are.
        return (np.frombuffer(raw, dtype="<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(raw, dtype={"float16": "<f2", "float32": "<f4", "float64": "<f8"}[dtype])
