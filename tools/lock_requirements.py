"""`python -m tools.lock_requirements`: writes the pinned versions in `requirements/`.

    python -m pip install uv
    python -m tools.lock_requirements              # after a change in pyproject.toml; keeps other versions
    python -m tools.lock_requirements --upgrade    # takes the newest version of everything

`constraints.txt` has the exact version of every package that the extra `dev` installs, directly or not.
It is passed to pip with `-c`. `locked.txt` has the same versions for the extra `all`, with a sha256 per file.
Both work on every platform and supported Python, and name no package index.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"
LOCKED = ROOT / "requirements" / "locked.txt"
CONSTRAINTS_HEADER = """\
# Written by tools/lock_requirements.py. Install with: pip install -c requirements/constraints.txt .
"""
LOCKED_HEADER = """\
# Written by tools/lock_requirements.py. Install with: pip install --require-hashes -r requirements/locked.txt
"""


def compile_requirements(extra: str, output: Path, header: str, *options: str) -> None:
    """Write the resolved requirements of one extra. Versions already in the file are kept where they fit."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--quiet", "--universal"]
    command += ["--python-version", "3.11", "--extra", extra, "--output-file", str(output)]
    command += ["--no-annotate", "--no-header", "--no-emit-index-url", "--no-emit-find-links"]
    # The project itself is installed from its own wheel or checkout, never from an index.
    command += ["--no-emit-package", "resift", *options]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own command
    output.write_text(header + output.read_text(encoding="utf-8"), encoding="utf-8")
    sys.stderr.write(f"wrote {output.relative_to(ROOT)}\n")


def main() -> int:
    """Write both files, the second with the versions of the first."""
    parser = argparse.ArgumentParser(prog="python -m tools.lock_requirements")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []
    CONSTRAINTS.parent.mkdir(exist_ok=True)
    compile_requirements("dev", CONSTRAINTS, CONSTRAINTS_HEADER, *upgrade)
    hashed = ["--generate-hashes", "--constraint", str(CONSTRAINTS), *upgrade]
    compile_requirements("all", LOCKED, LOCKED_HEADER, *hashed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
