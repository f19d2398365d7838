"""Build hook: compiles the forward pass where a C compiler is at hand. Without one ONNX Runtime computes."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/resift/models/native")
# Contraction would fuse products and sums that the runtime rounds one by one.
FLAGS = ["-std=c11", "-O3", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno"]


class CompileForwardPass(BuildHookInterface):
    """Adds libbert.so to the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the C files in place; a failure leaves a package without them."""
        if self.target_name != "wheel" or not self._compiled():
            return
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data |= {"pure_python": False, "tag": f"py3-none-{tag}"}

    def _compiled(self) -> bool:
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        folder = Path(self.root) / FOLDER
        library = folder / "libbert.so"
        library.unlink(missing_ok=True)
        if compiler is None or platform.machine() not in {"x86_64", "AMD64"} or os.name != "posix":
            return False
        sources = sorted(map(str, folder.glob("*.c")))
        command = [*compiler.split(), *FLAGS, "-o", str(library), *sources, "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own files
        if done.returncode != 0:
            self.app.display_warning(f"The forward pass was not compiled: {done.stderr.strip()[:500]}")
        return done.returncode == 0
