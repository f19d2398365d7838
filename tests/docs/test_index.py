"""Navigation, pictures and links of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_navigation_names_every_page():
    """A new page gets its place in mkdocs.yml."""
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = set(re.findall(r"[\w./-]+\.md", navigation))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert sorted(pages - named) == []


def test_every_picture_is_shown_and_legible_in_light_and_dark():
    """Pictures have a title and a description for readers who do not see them; no script, no network."""
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    for picture in sorted((DOCS / "pictures").glob("*.svg")):
        drawn = picture.read_text(encoding="utf-8")
        assert f"pictures/{picture.name})" in text
        assert "<title" in drawn
        assert "<desc" in drawn
        # A terminal is dark in both.
        assert "prefers-color-scheme: dark" in drawn or picture.name.startswith("terminal-")
        assert not re.search(r"<script|href=|url\((?!#)|@import", drawn)


def anchors(page: Path) -> set[str]:
    """Return what headings of a page are called in links, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_into_pages_name_a_heading():
    """A link with an anchor leads to a heading that is there."""
    lost = []
    for page in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target and anchor not in anchors(page.parent / target if target else page):
                lost.append(f"{page.name}: {target}#{anchor}")
    assert lost == []
