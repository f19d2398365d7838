"""The compiled library: loading it, and choosing the kernel that fits this processor.

Every function of the library carries its kernel's name (`bert_forward_avx512`). All kernels return the same
bits; they differ in speed and in the processors that can run them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from resift.errors import ConfigError

LIBRARY = Path(__file__).parent / {"win32": "resift.dll", "darwin": "libresift.dylib"}.get(
    sys.platform, "libresift.so"
)

INTERFACE = 2
"""What the library's functions and structures look like, as a number; RESIFT_INTERFACE of processor.h."""

KERNELS = ("avx512", "avx2", "i8mm", "neon", "portable")
"""Known kernels, the fastest first."""

SWITCH = "RESIFT_NATIVE"
"""Environment variable that forces a kernel by its name; 0 leaves everything to ONNX Runtime and numpy."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The compiled code that runs here, or the reason why none does and what to do about it."""

    name: str | None
    reason: str
    library: Any = None
    fix: str = ""

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
    if asked and asked not in KERNELS:
        known = ", ".join(("0", *KERNELS))
        raise ConfigError(
            f"{SWITCH}={asked[:40]!r} names no kernel. Known: {known}; unset it for the fastest."
        )
    usable = usable_kernels()
    if not asked:
        return usable[0]
    for kernel in usable:
        if kernel.name == asked:
            return replace(kernel, reason=f"forced by {SWITCH}")
    if usable[0].name is None:
        why = "; ".join(filter(None, (usable[0].reason, usable[0].fix)))
        raise ConfigError(f"{SWITCH}={asked} cannot be followed: {why}.")
    names = ", ".join(str(kernel.name) for kernel in usable)
    raise ConfigError(f"{SWITCH}={asked} does not run on this processor. It runs: {names}.")


@cache
def usable_kernels() -> tuple[Kernel, ...]:
    """Return the library's kernels that this processor runs, the fastest first; or why there is none."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as exc:
        return (_unloadable(exc),)
    found = library.resift_interface() if hasattr(library, "resift_interface") else 0
    if found != INTERFACE:
        return (_outdated(found),)
    library.resift_kernels.restype = ctypes.c_char_p
    able = library.resift_kernels().decode().split()
    names = [name for name in able if hasattr(library, f"bert_forward_{name}")]
    reason = "the fastest of " + ", ".join(names) + " here"
    return tuple(Kernel(name, reason, library) for name in names)


def _unloadable(exc: OSError) -> Kernel:
    if LIBRARY.exists():
        return Kernel(None, f"{LIBRARY.name} does not load here: {exc}", fix=_AGAIN)
    return Kernel(
        None, "this installation has no compiled code; install a wheel, or with a C compiler at hand"
    )


def _outdated(found: int) -> Kernel:
    # Called all the same, it would take memory for what it is not.
    reason = (
        f"{LIBRARY.name} was built from other sources than this Python code "
        f"(interface {found}, not {INTERFACE}) and is not used"
    )
    return Kernel(None, reason, fix=_AGAIN)


_AGAIN = (
    "install Resift again: pip install --force-reinstall --no-deps resift (in a checkout: pip install -e .)"
)
