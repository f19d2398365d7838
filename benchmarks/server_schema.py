"""schemathesis against a started server: `/openapi.json` must be true of every route.

It reads the description, makes requests that fit it and requests that do not, and looks for 5xx, answers that
are not described, bad requests that are accepted and good ones that are refused. The server runs with small
limits, which the description names too: at a million characters a text nearly all time goes into typing them.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import ENVS, peer_env
from tests.server.process import Server

REQUIREMENTS = ("schemathesis==4.32.5",)
PHASES = "examples,coverage,fuzzing"
LIMITS = ("--max-text-chars", "300", "--max-documents", "5", "--max-body-bytes", "100000")


def described(server: Server, *, examples: int, seed: int = 1) -> dict[str, Any]:
    """Return how many requests were made and what was found."""
    peer_env("schemathesis", REQUIREMENTS)
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = [
            str(ENVS / "schemathesis" / "bin" / "st"), "run", f"{server.url}/openapi.json",
            "--phases", PHASES, "--max-examples", str(examples), "--seed", str(seed), "--continue-on-failure",
            "--no-color", "--report-json-path", str(report),
        ]  # fmt: skip
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        found = json.loads(report.read_text(encoding="utf-8"))
    if found["failures"] or found["errors"]:
        print(done.stdout)
    kept = ("complete", "operations", "test_cases", "failures", "errors", "seed", "running_time")
    return {name: found[name] for name in kept}
