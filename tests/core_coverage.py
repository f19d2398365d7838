"""`python -m tests.core_coverage`: every branch of fusion, plugins and the values runs in their tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ["resift.ranking.fusion", "resift.plugins", "resift.types"]
TESTS = ["tests/ranking/fusion", "tests/test_plugins.py", "tests/test_types.py", "tests/test_types_from_files.py"]


def main() -> int:
    """Run the tests; fails below 100 % of the branches, and names the lines."""
    report = ["--cov-branch", "--cov-report=term-missing:skip-covered", "--cov-fail-under=100"]
    words = ["pytest", *TESTS, *(f"--cov={name}" for name in MEASURED), *report, *sys.argv[1:]]
    return subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
