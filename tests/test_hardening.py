"""Every attack of `python -m benchmarks.hardening` in short, and the page of the last full run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.hardening.__main__ import ATTACKS
from benchmarks.hardening.page import PAGE, made
from benchmarks.harness import RESULTS

ROOT = Path(__file__).resolve().parent.parent
NAMES = list(ATTACKS)


@pytest.mark.real_model
def test_every_attack_is_held_off():
    """A minute of work, each attack in a process of its own; what did not hold is in the output."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.hardening", "--short", *NAMES],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len([line for line in done.stdout.splitlines() if "held" in line]) == len(NAMES)


def test_the_page_shows_the_last_full_run():
    """The line and the table are those of the committed results, with machine and commit."""
    file = RESULTS / "hardening.json"
    if not file.exists():
        pytest.skip("no full run has been written down yet")
    result = json.loads(file.read_text(encoding="utf-8"))
    assert made(result) in PAGE.read_text(encoding="utf-8")
    assert set(result["attacks"]) == set(ATTACKS)
