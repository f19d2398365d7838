"""`python -m tests.check` runs ruff, mypy --strict and pytest, and stops at a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKS = [
    ["ruff", "check", "."],
    ["ruff", "format", "--check", "."],
    ["mypy"],
    ["pytest", "-n", str(min(4, os.cpu_count() or 1)), "--dist", "loadfile", "-rs"],
]


def main() -> int:
    """Run the checks in order; extra words go to pytest."""
    for check in CHECKS:
        words = [*check, *sys.argv[1:]] if check[0] == "pytest" else check
        sys.stdout.write(f"\n$ {' '.join(words)}\n")
        sys.stdout.flush()
        code = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=False).returncode
        if code != 0:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
