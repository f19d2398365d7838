"""The compiled forward pass: its library, and the structures that its C code reads (native/bert.h)."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).parent / "native" / "libbert.so"
PANEL = 64
"""Outputs of a linear layer that are computed together; its weights are laid out by them."""

SWITCH = "RESIFT_NATIVE"
"""Set to 0, this variable makes ONNX Runtime compute everything."""


class Dense(Structure):
    """A linear layer with int8 weights in panels."""

    _fields_ = (
        ("inputs", c_int32),
        ("outputs", c_int32),
        ("packed", c_void_p),
        ("sums", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
    )


class Norm(Structure):
    """A layer normalisation."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p))


class Layer(Structure):
    """One layer of the encoder."""

    _fields_ = (
        ("ask", Dense),
        ("mix", Dense),
        ("widen", Dense),
        ("narrow", Dense),
        ("attended", Norm),
        ("output", Norm),
    )


class Table(Structure):
    """A table of quantised embeddings."""

    _fields_ = (("values", c_void_p), ("scale", c_float), ("zero", c_int32))


class Bert(Structure):
    """A whole model."""

    _fields_ = (
        ("hidden", c_int32),
        ("heads", c_int32),
        ("wide", c_int32),
        ("layers", c_int32),
        ("factor", c_float),
        ("on_each_side", c_int32),
        ("words", Table),
        ("kinds", Table),
        ("places", c_void_p),
        ("embedded", Norm),
        ("layer", POINTER(Layer)),
        ("classes", c_int32),
        ("pool", Dense),
        ("classify", Dense),
    )


def native_code() -> Any:
    """Return the compiled library; None where it was not built, cannot run or is switched off."""
    return None if os.environ.get(SWITCH) == "0" else _loaded()


@cache
def _loaded() -> Any:
    try:
        code = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    if not code.resift_supported():
        return None
    code.resift_scratch.argtypes = (c_void_p, c_int32)
    code.resift_scratch.restype = c_int64
    code.resift_pack.argtypes = (c_void_p, c_int32, c_int32, c_void_p, c_void_p)
    code.resift_pack.restype = None
    code.resift_forward.argtypes = (c_void_p, c_void_p, c_void_p, c_int32, c_int32, c_void_p, c_void_p)
    code.resift_forward.restype = None
    return code
