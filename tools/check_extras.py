"""`python -m tools.check_extras [EXTRA …]`: each adapter in an environment with nothing but its own extra.

Makes a virtual environment per extra, installs this checkout with that extra alone, and imports every public
name of the adapter. Takes minutes, so it is no test; run it when extras or adapters change.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = {
    "langchain": "resift.integrations.langchain",
    "llama-index": "resift.integrations.llama_index",
    "haystack": "resift.integrations.haystack",
    "chroma": "resift.integrations.external_store",
    "elasticsearch": "resift.integrations.external_store",
    "mcp": "resift.integrations.mcp",
    "": "resift.integrations.txtai",  # a duck type: it needs nothing of txtai's
}
CHECK = """
import importlib, sys
import resift
loaded = sorted({name.partition(".")[0] for name in sys.modules} & {"numpy", "pydantic", "yaml", "httpx"})
assert not loaded, f"import resift loaded {loaded}"
adapter = importlib.import_module(sys.argv[1])
for name in getattr(adapter, "__all__", None) or [one for one in dir(adapter) if not one.startswith("_")]:
    getattr(adapter, name)
"""


def check(extra: str, folder: Path) -> str:
    """Return what went wrong with one extra, or nothing."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    wanted = f"{ROOT}[{extra}]" if extra else str(ROOT)
    for command in (["-m", "pip", "install", "-q", wanted], ["-c", CHECK, MODULES[extra]]):
        done = subprocess.run([python, *command], capture_output=True, text=True, check=False, cwd=folder)  # noqa: S603
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
    return ""


def main() -> int:
    """Check the extras named, or all, one line each."""
    failed = 0
    for extra in sys.argv[1:] or MODULES:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            problem = check(extra, Path(folder) / "env")
        failed += bool(problem)
        label = f"resift[{extra}]" if extra else "resift"
        sys.stdout.write(f"{label:<24} {MODULES[extra]:<34} {problem or 'ok'} ({time.monotonic() - started:.0f} s)\n")
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
