"""Build hook: compiles the C code where a compiler is at hand. Without one ONNX Runtime computes.

`RESIFT_COMPILE=0` leaves it out; `tools.wheels` then adds each platform's own.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))
from tools.native_build import CompileError, build_library, library_name


class CompileNativeCode(BuildHookInterface):
    """Adds the shared library to the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the C files in place; a failure leaves a package without them."""
        if self.target_name != "wheel" or os.environ.get("RESIFT_COMPILE") == "0":
            return
        library = Path(self.root) / "src" / "resift" / "native" / library_name()
        if self._compiled(library):
            tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data |= {"pure_python": False, "tag": f"py3-none-{tag}"}
            build_data["artifacts"].append(library.relative_to(self.root).as_posix())

    def _compiled(self, library: Path) -> bool:
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        library.unlink(missing_ok=True)
        if compiler is None:
            return False
        try:
            build_library(compiler.split(), platform.machine(), library)
        except (CompileError, OSError) as exc:
            self.app.display_warning(f"The forward pass was not compiled: {exc}")
            return False
        return True
