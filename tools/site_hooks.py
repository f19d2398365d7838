"""Add pages outside docs/ to the site, and a copy of each page as Markdown for assistants.

ARCHITECTURE.md and similar pages, the examples and the agent skill are part of the site. Their links are
written for readers of the repository and are changed to fit the site. `llms.txt` lists all pages (https://llmstxt.org).
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SKILL = "skills/resift/SKILL.md"
BESIDE = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", SKILL)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)#\s]+)")


def on_config(config: Any) -> Any:
    """Leave out pages of the navigation that do not exist yet."""
    config.nav = existing_pages(config.nav)
    return config


def existing_pages(nav: list[Any]) -> list[Any]:
    """Return a navigation without missing pages and without empty sections."""
    kept: list[Any] = []
    for entry in nav:
        title, target = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(target, list):
            inner = existing_pages(target)
            kept += [{title: inner}] if inner else []
        elif (ROOT / "docs" / target).exists() or target in BESIDE or target.startswith("examples/"):
            kept.append(entry)
    return kept


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and the examples."""
    from mkdocs.structure.files import File

    shown = (".md", ".py", ".ipynb")
    examples = [path for path in sorted((ROOT / "examples").iterdir()) if path.suffix in shown]
    for path in [*(ROOT / name for name in BESIDE), *examples]:
        uri, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn a link of the repository into one of the site: docs/ is its root."""
    uri = page.file.src_uri
    beside = uri in BESIDE or uri.startswith("examples/")
    here = posixpath.dirname(uri if beside else f"docs/{uri}")

    def turned(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, match[1]))
        inside = target.removeprefix("docs/")
        if inside == target and not beside and not target.startswith(("examples/", *BESIDE)):
            return match[1]
        return posixpath.relpath(inside, posixpath.dirname(uri) or ".")

    return LINK.sub(turned, markdown)


def on_post_build(config: Any) -> None:
    """Copy each page as Markdown next to its HTML, and write llms.txt."""
    site = Path(config.site_dir)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        target = site / page.relative_to(ROOT / "docs")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(without_hidden_blocks(page.read_text(encoding="utf-8")), encoding="utf-8")
    (site / "llms.txt").write_text(llms_text(config.nav), encoding="utf-8")


def without_hidden_blocks(text: str) -> str:
    """Return a page without the code that only tests run."""
    return re.sub(r"^<!--\n```.*?^-->\n", "", text, flags=re.MULTILINE | re.DOTALL)


def llms_text(nav: list[Any]) -> str:
    """Return the list of pages for language models: title, address and first sentence."""
    about = "> A Python library, command line and server that merges, reranks and explains search results."
    lines = ["# Resift", "", "> Better search results from the search you already have.", about, ""]
    for entry in nav:
        (title, target) = next(iter(entry.items()))
        lines += [f"## {title}", "", *_listed(target if isinstance(target, list) else [target]), ""]
    return "\n".join(lines)


def _listed(pages: list[Any]) -> list[str]:
    lines: list[str] = []
    for page in pages:
        target = next(iter(page.values())) if isinstance(page, dict) else page
        if isinstance(target, list):
            lines += _listed(target)
        elif (ROOT / "docs" / target).exists():
            text = (ROOT / "docs" / target).read_text(encoding="utf-8")
            title = re.search(r"^# (.+)$", text, re.MULTILINE)
            prose = [line for line in text.splitlines() if re.match(r"[A-Z`*]", line)]
            about = re.split(r"(?<=[.!?:]) ", prose[0])[0] if prose else ""
            about = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", about)
            lines.append(f"- [{title[1] if title else target}]({target}): {about}")
    return lines
