"""Every Python and console block of the README and of docs/ runs and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.page_runner import run_page, slow_imports
from tools import build_outputs

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


def pages_with_code() -> list[Path]:
    """Return the pages that need large packages last: each fork takes longer to end once they are loaded."""
    programs = {page: build_outputs.program(page.read_text(encoding="utf-8")) for page in PAGES}
    return sorted((page for page in PAGES if programs[page]), key=lambda page: len(slow_imports(programs[page])))


@pytest.mark.parametrize("page", pages_with_code(), ids=page_id)
def test_code_runs(page, tmp_path):
    """What the docs show works, in an empty folder, with warnings as errors, and prints what they say."""
    answer = run_page(page, tmp_path)
    assert answer.returncode == 0, f"{page.relative_to(ROOT)}\n{answer.stderr}"
    outputs = build_outputs.printed(answer.stdout)
    stale = build_outputs.differences(page.read_text(encoding="utf-8"), outputs)
    assert not stale, f"{page.relative_to(ROOT)} is out of date; run tools.build_outputs on it\n{stale}"


def test_every_shell_block_is_a_console_block():
    """Blocks of other languages would not run, and a console block without a prompt has no command."""
    blocks = [
        (page.name, block[1], block[2].splitlines()[0])
        for page in PAGES
        for block in build_outputs.FENCE.finditer(page.read_text(encoding="utf-8"))
    ]
    wrong = [
        (name, line)
        for name, language, line in blocks
        if language in ("bash", "sh", "shell") or (language == "console" and not line.startswith("$ "))
    ]
    assert wrong == []


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=page_id)
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
