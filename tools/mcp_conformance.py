"""`python -m tools.mcp_conformance`: MCP's own conformance suite against `resift serve --mcp`.

Needs node 22 or newer and the npm package; `--suite "node …/conformance/dist/index.js"` names an installed
one. What is expected to fail, and why, stands in tests/integrations/mcp_expected_failures.yml.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from resift import Index
from tests.server.process import real

EXPECTED = Path(__file__).resolve().parent.parent / "tests" / "integrations" / "mcp_expected_failures.yml"
SUITE = "npx --yes @modelcontextprotocol/conformance@0.1.16"


def main() -> int:
    """Start a server over a small index, run the suite on it and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", default=SUITE, help="command of the suite (default: %(default)s)")
    command = shlex.split(parser.parse_args().suite)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "notes.db"
        with Index(store, text_only=True, rerank=False) as index:
            index.add(["Late returns cost twenty cents a day.", "Lunch is at noon."])
        server = real("--mcp", "--store", str(store), "--embedder", "none")
        asked = ["server", "--url", f"{server.url}/mcp/", "--expected-failures", str(EXPECTED)]
        try:
            return subprocess.run([*command, *asked], cwd=folder, check=False).returncode  # noqa: S603
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
