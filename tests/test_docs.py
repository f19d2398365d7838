"""Every Python block of the README and of docs/ runs as printed, page by page, top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def code_of(page: Path) -> str:
    """Return the page's program, each block at its own line, so that errors name the right one."""
    text = page.read_text(encoding="utf-8")
    program = ""
    for match in BLOCK.finditer(text):
        line = text[: match.start(1)].count("\n")
        program += "\n" * (line - program.count("\n")) + match.group(1)
    return program


@pytest.mark.parametrize("page", [page for page in PAGES if code_of(page)], ids=lambda page: page.name)
def test_code_runs(page, tmp_path):
    """What the docs show works, in an empty folder, with warnings as errors."""
    script = tmp_path / page.with_suffix(".py").name.replace("-", "_")
    script.write_text(code_of(page), encoding="utf-8")
    answer = subprocess.run(
        [sys.executable, "-W", "error", script.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert answer.returncode == 0, f"{page.relative_to(ROOT)}\n{answer.stderr}"


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """A relative link names a file that is there."""
    targets = [match.group(1) for match in LINK.finditer(page.read_text(encoding="utf-8"))]
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_ci_runs_the_readmes_test_command():
    """The command in the README is the one that decides what lands."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    command = next(line for line in script.splitlines() if "tests.check" in line)
    assert command in readme
