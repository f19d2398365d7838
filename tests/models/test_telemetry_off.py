"""ONNX Runtime reports to nobody when Resift loads it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os
from resift.models.session import onnx_runtime
onnx_runtime()
print(os.environ["ORT_DISABLE_TELEMETRY"])
"""


@pytest.mark.slow
def test_the_runtime_leaves_no_trace_of_telemetry(tmp_path):
    """Importing it through Resift writes no session id; a user's own setting is kept."""
    pytest.importorskip("onnxruntime")
    unset = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    for given, expected in (({}, "1"), ({"ORT_DISABLE_TELEMETRY": "true"}, "true")):
        env = {**unset, **given, "TMPDIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected
        assert list(tmp_path.iterdir()) == []
