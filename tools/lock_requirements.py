"""Writes requirements.lock and requirements-dev.lock: every version pinned, every file by its sha256.

    python -m pip install uv
    python tools/lock_requirements.py           # write both
    python -m pip install --require-hashes -r requirements.lock && python -m pip install --no-deps resift

The files name no package index, so they work with whichever one pip is set up to ask.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEV = "dev"
HEADER = "# Made by tools/lock_requirements.py. Install with: pip install --require-hashes -r {name}\n"


def extras() -> list[str]:
    """Return the extras of the project, without the one for developers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return sorted(set(project["optional-dependencies"]) - {DEV})


def locked(chosen: list[str]) -> str:
    """Return the requirements of these extras for every platform, pinned and hashed."""
    words = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--quiet", "--universal"]
    words += [
        "--generate-hashes",
        "--no-emit-index-url",
        "--no-emit-find-links",
        "--no-annotate",
        "--no-header",
    ]
    words += [word for extra in chosen for word in ("--extra", extra)]
    # The project itself is installed from its own wheel or checkout, never from an index.
    words += ["--no-emit-package", "resift"]
    done = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603 - our own words
    return done.stdout


def main() -> int:
    """Write both files."""
    for name, chosen in (("requirements.lock", extras()), ("requirements-dev.lock", [DEV])):
        (ROOT / name).write_text(HEADER.format(name=name) + locked(chosen), encoding="utf-8")
        sys.stderr.write(f"wrote {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
