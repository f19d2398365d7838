"""`python -m tests.each_kernel [kernel …]` runs the tests that use a real model with each kernel forced.

Without names: every kernel of this processor but portable C, with which they take about an hour. Words after
`--` go to pytest: `python -m tests.each_kernel portable -- tests/models -k every_kernel`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from resift.native.library import SWITCH, usable_kernels

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run the kernels one after another and say at the end which of them failed."""
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    able = [kernel.name for kernel in usable_kernels() if kernel.name]
    names, asked = words[:cut] or [name for name in able if name != "portable"], words[cut + 1 :]
    unknown = [name for name in names if name not in able]
    if unknown:
        sys.stderr.write(f"{unknown[0]}: no kernel here, only {', '.join(able)}. Tests go after --\n")
        return 2
    tests = ["-m", "pytest", "-q", "-n", str(os.cpu_count() or 1), "--dist", "loadfile", "-m", "real_model"]
    failed = []
    for name in names:
        sys.stdout.write(f"\n$ {SWITCH}={name} pytest -m real_model {' '.join(asked)}\n")
        sys.stdout.flush()
        forced = {**os.environ, SWITCH: name}
        done = subprocess.run([sys.executable, *tests, *asked], cwd=ROOT, env=forced, check=False)
        failed += [name] if done.returncode else []
    sys.stdout.write(f"failed with: {', '.join(failed)}\n" if failed else "passed with each kernel\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
