"""The documentation as a site: built strictly, every page in its navigation, searchable, self-contained."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"']?(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The built site. A link or an anchor that leads nowhere, or a page outside the navigation, fails it."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there_and_can_be_searched(site):
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if not (site / page.with_suffix(".html")).exists()] == []
    rows = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    found = {row["location"].partition("#")[0] for row in rows}
    assert {page.with_suffix(".html").as_posix() for page in pages} <= found
    assert "ARCHITECTURE.html" in found


def test_no_page_loads_anything_from_elsewhere(site):
    loading = {path.name: ELSEWHERE.findall(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert {name: found for name, found in loading.items() if found} == {}


def test_pages_beside_docs_keep_their_links(site):
    """Links out of docs/ were turned to the pages that the site has of them."""
    home = (site / "index.html").read_text(encoding="utf-8")
    assert re.search(r'href="(?:\./)?ARCHITECTURE.html"', home)
    assert re.search(r'href="(?:\./)?examples/index.html"', home)


def test_assistants_get_markdown_and_a_list_of_pages(site):
    """llms.txt lists every page of docs/, each is there as Markdown, and without code that only tests run."""
    listed = re.findall(r"\]\(([^)]+\.md)\)", (site / "llms.txt").read_text(encoding="utf-8"))
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)
    assert [page for page in listed if not (site / page).exists()] == []
    assert "<!--\n```" not in (site / "guides" / "connect" / "files.md").read_text(encoding="utf-8")
