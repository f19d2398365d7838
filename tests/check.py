"""Run ruff, mypy --strict and pytest, and stop at the first failure.

python -m tests.check                       # everything that decides whether a change lands
python -m tests.check tests/fusion -x       # other words go to pytest
python -m tests.check --fast                # ruff, mypy and the quick tests of every package
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUFF = [["ruff", "check", "."], ["ruff", "format", "--check", "."]]
PYTEST = ["pytest", "-n", str(min(4, os.cpu_count() or 1)), "--dist", "loadfile", "-rs"]
FRAMEWORKS = ["tests/integrations", "tests/fusion/test_against_engines.py"]
"""These import LangChain, LlamaIndex and Haystack, which cost every worker 15 seconds of CPU time."""
ONE_PROCESS = ["pytest", "-p", "no:xdist", "-rs"]
FAST = [*ONE_PROCESS, "-m", "not (slow or real_model or property or hardening)"]


def main() -> int:
    """Run the checks in order; words other than --fast go to pytest."""
    words = [word for word in sys.argv[1:] if word != "--fast"]
    if "--fast" in sys.argv:
        tests = [[*FAST, *(words or without_frameworks())]]
    elif any(not word.startswith("-") for word in words):
        tests = [[*PYTEST, *words]]
    else:
        tests = [[*PYTEST, *without_frameworks(), *words], [*ONE_PROCESS, *FRAMEWORKS, *words]]
    code = 0
    for check in [*RUFF, ["mypy"], *tests]:
        sys.stdout.write(f"\n$ {' '.join(check)}\n")
        sys.stdout.flush()
        code = subprocess.run([sys.executable, "-m", *check], cwd=ROOT, check=False).returncode
        if code != 0:
            break
    sys.stdout.write(f"\n{'failed' if code else 'passed'} after {cpu_seconds():.0f} s of CPU time\n")
    return code


def without_frameworks() -> list[str]:
    """Return the options that leave the frameworks to a process of their own."""
    return [f"--ignore={path}" for path in FRAMEWORKS]


def cpu_seconds() -> float:
    """Return the CPU time of the checks so far, subprocesses included."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    sys.exit(main())
