"""Load the compiled library and select the kernel for this processor.

The name of every C function ends with its kernel (`bert_forward_avx512`). All kernels return bit-identical
results. They differ in speed and in the processors that can run them.
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

LIBRARY = Path(__file__).parent / {"win32": "resift.dll", "darwin": "libresift.dylib"}.get(sys.platform, "libresift.so")

INTERFACE = 4  # version of the library's functions and structures; must equal RESIFT_INTERFACE in processor.h

KERNELS = ("avx512", "avx2", "i8mm", "neon", "portable")  # all kernels, fastest first

SWITCH = "RESIFT_NATIVE"
"""Environment variable that forces a kernel by name; 0 selects ONNX Runtime and numpy for everything."""

_REINSTALL = "reinstall Resift: pip install --force-reinstall --no-deps resift (in a checkout: pip install -e .)"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel for this processor. Without one, `name` has the value None, and `reason` and `fix` explain why."""

    name: str | None
    reason: str
    library: ctypes.CDLL | None = None
    fix: str = ""

    def function(self, name: str, returns: Any = None, *arguments: Any) -> Any:
        """Return this kernel's version of a C function, and declare its types if given."""
        full_name = f"{name}_{self.name}"
        if self.name == "i8mm" and not hasattr(self.library, full_name):
            # i8mm has its own matrix products and shares everything else with neon.
            full_name = f"{name}_neon"
        function = getattr(self.library, full_name)
        if arguments:
            function.restype, function.argtypes = returns, arguments
        return function


def native_kernel() -> Kernel:
    """Return the fastest kernel for this processor, or the one named in RESIFT_NATIVE."""
    forced = os.environ.get(SWITCH, "")
    if forced == "0":
        return Kernel(None, f"{SWITCH}=0 disables compiled code")
    if forced and forced not in KERNELS:
        known = ", ".join(("0", *KERNELS))
        raise ConfigError(f"{SWITCH}={forced[:40]!r} is not a kernel. Allowed: {known}; unset it to use the fastest.")
    usable = usable_kernels()
    if not forced:
        return usable[0]
    for kernel in usable:
        if kernel.name == forced:
            return replace(kernel, reason=f"forced by {SWITCH}")
    if usable[0].name is None:
        reason = "; ".join(filter(None, (usable[0].reason, usable[0].fix)))
        raise ConfigError(f"{SWITCH}={forced} has no effect: {reason}.")
    names = ", ".join(str(kernel.name) for kernel in usable)
    raise ConfigError(f"{SWITCH}={forced} does not run on this processor. Available: {names}.")


@cache
def usable_kernels() -> tuple[Kernel, ...]:
    """Return the kernels for this processor, fastest first, or a single one without a name and with the reason."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as exc:
        if LIBRARY.exists():
            return (Kernel(None, f"{LIBRARY.name} does not load here: {exc}", fix=_REINSTALL),)
        return (Kernel(None, "this installation has no compiled code; install a wheel, or provide a C compiler"),)
    interface = library.resift_interface() if hasattr(library, "resift_interface") else 0
    if interface != INTERFACE:
        # Calling it anyway would misinterpret the memory of its structures.
        reason = (
            f"{LIBRARY.name} was built from other sources (interface {interface}, but this Python code requires "
            f"{INTERFACE}) and is not used"
        )
        return (Kernel(None, reason, fix=_REINSTALL),)
    library.resift_kernels.restype = ctypes.c_char_p
    supported = library.resift_kernels().decode().split()
    names = [name for name in supported if hasattr(library, f"bert_forward_{name}")]
    reason = f"fastest of {', '.join(names)} on this processor"
    return tuple(Kernel(name, reason, library) for name in names)
