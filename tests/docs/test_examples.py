"""Every script in examples/ runs as it is, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
EXPECTED = {
    "rerank_lines.py": "1.  +",
    "search_folder.py": "Each day late costs twenty cents.",
    "two_stores.py": "1 of 2 stores failed: archive",
    "hosted_with_fallback.py": "by semantic-bm25 (degraded: api_error",
}


def test_every_example_is_known():
    """A new script says here what it must print, and stands in the table of examples/README.md."""
    assert [path.name for path in SCRIPTS] == sorted(EXPECTED)
    table = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert all(f"]({name})" in table for name in EXPECTED)


@pytest.mark.real_model
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_example_runs(script, tmp_path):
    """It ends with code 0 and prints what it is there to show."""
    env = {key: value for key, value in os.environ.items() if key != "VOYAGE_API_KEY"}
    answer = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**env, "PYTHONUTF8": "1"},
    )
    assert answer.returncode == 0, answer.stderr
    assert EXPECTED[script.name] in answer.stdout
