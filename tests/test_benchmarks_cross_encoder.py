"""The cross-encoder benchmark runs: Resift alone, small numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.real_model
def test_the_quick_run_tells_speed_memory_and_agreement():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cross_encoder", "--quick"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["agreement"]["max_difference"] < 0.05
    assert told["agreement"]["same_order"]
    assert told["cold_start"]["resift"]["rss_mb"] < 300
    assert told["speed"]
    assert set(told["calls"]["ms_per_pair"]) == {"calls of 2", "calls of 4"}
