"""The compiled library: loading it, and choosing the kernel that fits this processor.

Every function of the library carries its kernel's name (`bert_forward_avx512`). All kernels return the same
bits; they differ in speed and in the processors that can run them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from resift.errors import ConfigError

LIBRARY = Path(__file__).parent / {"win32": "resift.dll", "darwin": "libresift.dylib"}.get(
    sys.platform, "libresift.so"
)

KERNELS = ("avx512", "avx2", "i8mm", "neon", "portable")
"""Known kernels, the fastest first."""

SWITCH = "RESIFT_NATIVE"
"""Environment variable that forces a kernel by its name; 0 leaves everything to ONNX Runtime and numpy."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The compiled code that runs here, or the reason why none does."""

    name: str | None
    reason: str
    library: Any = None

    def function(self, name: str) -> Any:
        """Return one of the kernel's C functions by the name it has without the kernel's."""
        own = f"{name}_{self.name}"
        if self.name == "i8mm" and not hasattr(self.library, own):
            # Only what multiplies matrices has a form of its own there.
            own = f"{name}_neon"
        return getattr(self.library, own)


def native_kernel() -> Kernel:
    """Return the fastest kernel of this processor, or the one that RESIFT_NATIVE names."""
    asked = os.environ.get(SWITCH, "")
    if asked == "0":
        return Kernel(None, f"{SWITCH}=0 switches compiled code off")
    library, usable = _loaded()
    if asked and asked not in KERNELS:
        known = ", ".join(("0", *KERNELS))
        raise ConfigError(
            f"{SWITCH}={asked[:40]!r} names no kernel. Known: {known}; unset it for the fastest."
        )
    if library is None:
        return Kernel(
            None, "this installation has no compiled code; install a wheel, or with a C compiler at hand"
        )
    if asked and asked not in usable:
        raise ConfigError(f"{SWITCH}={asked} does not run on this processor. It runs: {', '.join(usable)}.")
    if asked:
        return Kernel(asked, f"forced by {SWITCH}", library)
    return Kernel(usable[0], "the fastest of " + ", ".join(usable) + " here", library)


@cache
def _loaded() -> tuple[Any, tuple[str, ...]]:
    """Return the library and the kernels that it holds and this processor runs, the fastest first."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None, ()
    library.resift_kernels.restype = ctypes.c_char_p
    able = library.resift_kernels().decode().split()
    return library, tuple(name for name in able if hasattr(library, f"bert_forward_{name}"))
